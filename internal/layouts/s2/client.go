package s2

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Config says where the files are kept.
type Config struct {
	Basin    string
	Token    string       // the access token
	Prefix   string       // of all stream names; default: none
	Endpoint string       // default: "https://BASIN.b.s2.dev/v1"
	Client   *http.Client // default: http.DefaultClient
}

// Error is an answer by which the server refuses a request.
type Error struct {
	Status  int    // HTTP status
	Code    string // the server's error code
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("S2 answered %d %s %s", e.Status, e.Code, e.Message)
}

// isStatus reports whether an error is an answer with a status.
func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// Limits of S2, and of its answers.
const (
	maxName   = 512       // bytes
	pieceSize = 512 << 10 // of a body: the limit of a batch is 1 MiB with all headers
	pageOf    = 1000
	maxAnswer = 16 << 20
)

// record is a record of a stream. Its []byte members are base64 in JSON, as s2-format says.
type record struct {
	Seq       uint64      `json:"seq_num,omitempty"`
	Timestamp uint64      `json:"timestamp,omitempty"`
	Headers   [][2][]byte `json:"headers,omitempty"`
	Body      []byte      `json:"body"`
}

type position struct {
	Seq uint64 `json:"seq_num"`
}

type appended struct {
	Start position `json:"start"`
}

type batch struct {
	Records []record  `json:"records"`
	Tail    *position `json:"tail"`
}

type streams struct {
	Streams []struct {
		Name      string  `json:"name"`
		DeletedAt *string `json:"deleted_at"`
	} `json:"streams"`
	HasMore bool `json:"has_more"`
}

// call sends a request and decodes the answer into out.
func (s *Storage) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	endpoint := cmp.Or(s.o.Endpoint, "https://"+s.o.Basin+".b.s2.dev/v1")
	req, err := http.NewRequestWithContext(ctx, method, endpoint+path, body)
	if err != nil {
		return err
	}
	req.URL.RawQuery = query.Encode()
	req.Header.Set("Authorization", "Bearer "+s.o.Token)
	req.Header.Set("S2-Format", "base64")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := cmp.Or(s.o.Client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		e := &Error{Status: resp.StatusCode}
		_ = json.Unmarshal(data, e) // or Error has only the status
		return e
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// append adds records to a stream, and creates it if it is missing. It returns the sequence number of the first
// record.
func (s *Storage) append(ctx context.Context, stream string, records ...record) (uint64, error) {
	var ack appended
	at, in := "/streams/"+url.PathEscape(stream), map[string]any{"records": records}
	err := s.call(ctx, http.MethodPost, at+"/records", nil, in, &ack)
	if isStatus(err, http.StatusNotFound) {
		forever := map[string]any{"retention_policy": map[string]any{"infinite": map[string]any{}}}
		if err = s.call(ctx, http.MethodPut, at, nil, forever, nil); err == nil {
			err = s.call(ctx, http.MethodPost, at+"/records", nil, in, &ack)
		}
	}
	return ack.Start.Seq, err
}

// records calls take with the records of a stream, in order.
func (s *Storage) records(ctx context.Context, stream string, take func(record)) error {
	for next := uint64(0); ; {
		var b batch
		query := url.Values{"seq_num": {strconv.FormatUint(next, 10)}, "count": {strconv.Itoa(pageOf)}}
		err := s.call(ctx, http.MethodGet, "/streams/"+url.PathEscape(stream)+"/records", query, nil, &b)
		if isStatus(err, http.StatusRequestedRangeNotSatisfiable) || err == nil && len(b.Records) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range b.Records {
			if r.Seq < next {
				return fmt.Errorf("layouts/s2: record %d comes after %d", r.Seq, next)
			}
			next = r.Seq + 1
			take(r)
		}
		if b.Tail != nil && b.Tail.Seq <= next {
			return nil
		}
	}
}

// names calls take with the names of the streams that have a prefix, until take returns false.
func (s *Storage) names(ctx context.Context, prefix string, take func(name string) bool) error {
	for after := ""; ; {
		var page streams
		query := url.Values{"prefix": {prefix}, "limit": {strconv.Itoa(pageOf)}}
		if after != "" {
			query.Set("start_after", after)
		}
		if err := s.call(ctx, http.MethodGet, "/streams", query, nil, &page); err != nil {
			return err
		}
		for _, stream := range page.Streams {
			if stream.Name <= after {
				return fmt.Errorf("layouts/s2: stream %q is listed after %q", stream.Name, after)
			}
			if after = stream.Name; stream.DeletedAt == nil && !take(stream.Name) {
				return nil
			}
		}
		if !page.HasMore || len(page.Streams) == 0 {
			return nil
		}
	}
}
