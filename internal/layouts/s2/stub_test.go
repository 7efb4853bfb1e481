package s2_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// stub is NOT S2. It is a stand-in for the server in tests and implements the facts that the package comment lists.
type stub struct {
	t       *testing.T
	token   string
	mu      sync.Mutex
	streams map[string]*stubStream
}

type stubStream struct {
	config  map[string]any
	next    uint64
	records []stubRecord
}

type stubRecord struct {
	Seq       uint64      `json:"seq_num"`
	Timestamp uint64      `json:"timestamp"`
	Headers   [][2][]byte `json:"headers"`
	Body      []byte      `json:"body"`
}

func serve(t *testing.T, token string) (*stub, *httptest.Server) {
	t.Helper()
	s := &stub{t: t, token: token, streams: make(map[string]*stubStream)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": "as said"})
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		refuse(w, http.StatusForbidden, "permission_denied")
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if len(parts) == 1 && parts[0] == "streams" && r.Method == http.MethodGet {
		s.list(w, r.URL.Query())
		return
	}
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "streams" || len(parts) == 3 && parts[2] != "records" {
		refuse(w, http.StatusBadRequest, "bad_path")
		return
	}
	name, err := url.PathUnescape(parts[1])
	if err != nil || len(name) < 1 || len(name) > 512 {
		refuse(w, http.StatusBadRequest, "invalid_argument")
		return
	}
	stream := s.streams[name]
	switch {
	case len(parts) == 2 && r.Method == http.MethodPut:
		s.streams[name] = cmp.Or(stream, &stubStream{})
		if err := json.NewDecoder(r.Body).Decode(&s.streams[name].config); err != nil {
			s.t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
		answer(w, map[string]any{"name": name, "created_at": "2026-11-23T00:00:00Z"})
	case len(parts) != 3:
		refuse(w, http.StatusBadRequest, "bad_method")
	case stream == nil:
		refuse(w, http.StatusNotFound, "stream_not_found")
	case r.Header.Get("S2-Format") != "base64":
		refuse(w, http.StatusBadRequest, "not_base64")
	case r.Method == http.MethodPost:
		s.append(w, r, stream)
	default:
		s.read(w, r.URL.Query(), stream)
	}
}

func (s *stub) list(w http.ResponseWriter, query url.Values) {
	var names []string
	for name := range s.streams {
		if strings.HasPrefix(name, query.Get("prefix")) && name > query.Get("start_after") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit > 1000 {
		refuse(w, http.StatusBadRequest, "invalid_argument")
		return
	}
	list := []map[string]any{}
	for _, name := range names[:min(limit, len(names))] {
		list = append(list, map[string]any{"name": name, "created_at": "2026-11-23T00:00:00Z", "deleted_at": nil})
	}
	answer(w, map[string]any{"streams": list, "has_more": len(names) > limit})
}

// metered returns the size of the record that counts for the limits.
func (r *stubRecord) metered() int {
	n := 8 + 2*len(r.Headers) + len(r.Body)
	for _, h := range r.Headers {
		n += len(h[0]) + len(h[1])
	}
	return n
}

func (s *stub) append(w http.ResponseWriter, r *http.Request, stream *stubStream) {
	var in struct{ Records []stubRecord }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, "bad_json")
		return
	}
	size := 0
	for _, r := range in.Records {
		size += r.metered()
	}
	if size > 1<<20 || len(in.Records) < 1 || len(in.Records) > 1000 {
		refuse(w, http.StatusUnprocessableEntity, "invalid")
		return
	}
	start := stream.next
	for _, r := range in.Records {
		r.Seq, r.Timestamp = stream.next, uint64(time.Now().UnixMilli())
		stream.records = append(stream.records, r)
		stream.next++
		if len(r.Headers) == 1 && len(r.Headers[0][0]) == 0 && string(r.Headers[0][1]) == "trim" {
			until := min(binary.BigEndian.Uint64(r.Body), stream.next)
			stream.records = slices.DeleteFunc(stream.records, func(r stubRecord) bool { return r.Seq < until })
		}
	}
	tail := map[string]any{"seq_num": stream.next, "timestamp": 1}
	answer(w, map[string]any{"start": map[string]any{"seq_num": start, "timestamp": 1}, "end": tail, "tail": tail})
}

func (s *stub) read(w http.ResponseWriter, query url.Values, stream *stubStream) {
	from, err := strconv.ParseUint(query.Get("seq_num"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_argument")
		return
	}
	tail := map[string]any{"seq_num": stream.next, "timestamp": 1}
	if from >= stream.next {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		answer(w, map[string]any{"tail": tail})
		return
	}
	records, size := []stubRecord{}, 0
	for _, r := range stream.records {
		if size += r.metered(); r.Seq < from {
			size = 0
			continue
		}
		if len(records) > 0 && (len(records) == 1000 || size > 1<<20) {
			break
		}
		records = append(records, r)
	}
	out := map[string]any{"records": records}
	if from%2 == 0 { // the member is optional
		out["tail"] = tail
	}
	answer(w, out)
}
