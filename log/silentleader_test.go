package log_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// leader answers one client as the leader of a stream with three replicas does. It is silent for a while: then another
// node leads, which has everything that was stored, and no part of an open batch.
type leader struct {
	store *memlog.Backend

	from, back time.Time // of the silence
	keeps      int       // of so many messages of the silence it stores every other one; the rest is lost
	idsFirst   bool      // it recognises an id before it looks at the expectation
	full       bool      // once back, it has no room for the messages of the silence, once for each

	arrived map[string]bool          // ids of the silence
	offsets map[string]events.Offset // by id
	open    map[string][]message     // by id of the batch
	isBack  bool
	sid     string // of the client's inbox
	out     chan []byte
}

type message struct {
	subject, reply string
	header         nats.Header
	fields         []byte // of the header that are the event's
	data           []byte
}

// Dial implements nats.CustomDialer.
func (s *leader) Dial(string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go s.read(bufio.NewReader(there))
	go func() {
		for b := range s.out {
			_, _ = there.Write(b) // fails once the client is closed
		}
	}()
	s.out <- []byte(`INFO {"server_id":"L","version":"2.15.2","proto":1,"headers":true,"max_payload":1048576}` + "\r\n")
	return here, nil
}

// read takes what the client sends, until it is closed.
func (s *leader) read(in *bufio.Reader) {
	defer close(s.out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch word := strings.Fields(line); word[0] {
		case "PING":
			s.out <- []byte("PONG\r\n")
		case "SUB":
			s.sid = word[len(word)-1]
		case "HPUB":
			head, _ := strconv.Atoi(word[len(word)-2])
			size, _ := strconv.Atoi(word[len(word)-1])
			body := make([]byte, size+2)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			m := message{subject: word[1], header: nats.Header{}, data: body[head:size]}
			if len(word) == 5 {
				m.reply = word[2]
			}
			for field := range strings.SplitSeq(string(body[:head]), "\r\n") {
				name, value, is := strings.Cut(field, ": ")
				if is {
					m.header[name] = []string{value}
				}
				if is && !strings.HasPrefix(name, "Nats-") {
					m.fields = append(m.fields, field+"\r\n"...)
				}
			}
			s.take(m)
		}
	}
}

// take decides what becomes of a message.
func (s *leader) take(m message) {
	now := time.Now()
	silent := !now.Before(s.from) && now.Before(s.back)
	if !s.isBack && !now.Before(s.back) {
		s.isBack = true
		clear(s.open)
	}
	id := m.header.Get("Nats-Msg-Id")
	if silent && !s.arrived[id] {
		s.arrived[id] = true
		s.keeps--
	}
	if silent && (s.keeps < 0 || s.keeps%2 == 0) {
		return
	}
	batch := m.header.Get("Nats-Batch-Id")
	list := []message{m}
	if batch != "" {
		s.open[batch] = append(s.open[batch], m)
		if list = s.open[batch]; m.header.Get("Nats-Batch-Commit") == "" {
			return
		}
		delete(s.open, batch)
	}
	answer := s.publish(list, batch)
	if !silent {
		s.out <- fmt.Appendf(nil, "MSG %s %s %d\r\n%s\r\n", m.reply, s.sid, len(answer), answer)
	}
}

// publish stores messages and returns the answer.
func (s *leader) publish(list []message, batch string) string {
	refused := func(code int, text string) string {
		return fmt.Sprintf(`{"error":{"code":400,"err_code":%d,"description":%q},"stream":"TALLY_1","seq":0}`, code, text)
	}
	last := list[len(list)-1]
	if batch != "" && last.header.Get("Nats-Batch-Sequence") != strconv.Itoa(len(list)) {
		return refused(10176, "batch publish is incomplete")
	}
	id := last.header.Get("Nats-Msg-Id")
	if s.full && s.isBack && s.arrived[id] {
		delete(s.arrived, id)
		return refused(10023, "insufficient resources")
	}
	if at := s.offsets[id]; at > 0 && batch == "" && s.idsFirst {
		return fmt.Sprintf(`{"stream":"TALLY_1","seq":%d,"duplicate":true}`, at)
	}
	w := log.Write{Subject: last.subject}
	if at := list[0].header.Get("Nats-Expected-Last-Subject-Sequence"); at != "" {
		n, _ := strconv.Atoi(at)
		w.Expect = log.Exactly{Set: true, At: events.Offset(n)}
	}
	for _, m := range list {
		w.Messages = append(w.Messages, log.Outgoing{ID: m.header.Get("Nats-Msg-Id"), Header: m.fields, Data: m.data})
	}
	got, err := s.store.Publish(context.Background(), log.Publication{Writes: []log.Write{w}})
	switch conflict, is := errors.AsType[*log.ConflictError](err); {
	case is:
		return refused(10071, fmt.Sprint("wrong last sequence: ", uint64(conflict.Have)))
	case errors.Is(err, log.ErrDuplicate):
		return refused(10201, "batch publish contains duplicate message id")
	case err != nil:
		return refused(10077, err.Error())
	}
	for i, m := range list {
		s.offsets[m.header.Get("Nats-Msg-Id")] = got.Last - events.Offset(len(list)-1-i)
	}
	answer := fmt.Sprintf(`{"stream":"TALLY_1","seq":%d`, uint64(got.Last))
	if got.Duplicate {
		answer += `,"duplicate":true`
	}
	if batch != "" {
		answer += fmt.Sprintf(`,"batch":%q,"count":%d`, batch, len(list))
	}
	return answer + "}"
}

// sent is an append of a program: to one of the subjects, after a pause.
type sent struct {
	Subject, Events int
	Old, Exact      bool // ids that are looked up; expecting the subject's last record
	Pause           int  // milliseconds
}

// A silent leader of a cluster delays appends, and nothing else: each one is acknowledged soon after a leader is back,
// stored once and in order, and a refused append stores nothing.
func TestSilentLeader(t *testing.T) {
	t.Run("B-33 appends to a leader that is silent", func(t *testing.T) {
		program := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sent {
			return sent{rapid.IntRange(0, 2).Draw(t, "subject"), rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(t, "events"),
				rapid.Bool().Draw(t, "old"), rapid.Bool().Draw(t, "exact"), rapid.IntRange(0, 1500).Draw(t, "pause")}
		}), 1, 12)
		rapid.Check(t, func(rt *rapid.T) {
			steps, began := program.Draw(rt, "program"), rapid.IntRange(0, 3000).Draw(rt, "began")
			lasts, keeps := rapid.IntRange(0, 10_000).Draw(rt, "lasts"), rapid.IntRange(0, 6).Draw(rt, "keeps")
			idsFirst, full := rapid.Bool().Draw(rt, "ids first"), rapid.Bool().Draw(rt, "full")
			err := inBubble(t, func() error {
				s := &leader{store: memlog.New(memlog.Config{}), keeps: keeps, idsFirst: idsFirst, full: full, arrived: map[string]bool{},
					offsets: map[string]events.Offset{}, open: map[string][]message{}, out: make(chan []byte, 64)}
				s.from = time.Now().Add(time.Duration(began) * time.Millisecond)
				s.back = s.from.Add(time.Duration(lasts) * time.Millisecond)
				return s.play(steps)
			})
			if err != nil {
				rt.Fatal(err)
			}
		})
	})
}

// play runs a program against the leader: the appends to each subject one after the other.
func (s *leader) play(steps []sent) error {
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.SetCustomDialer(s), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	l, err := log.OpenOn(context.Background(), log.Sending(s.store, nc, 15*time.Second), log.Config{})
	if err != nil {
		return err
	}
	defer l.Close()
	errs := make([]error, 3)
	var running sync.WaitGroup
	for sub := range errs {
		running.Go(func() {
			mine := slices.DeleteFunc(slices.Clone(steps), func(st sent) bool { return st.Subject != sub })
			errs[sub] = s.produce(l, events.Session("", strconv.Itoa(sub)), mine)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// produce appends to one subject, and then compares the subject with its appends.
func (s *leader) produce(l *log.Log, sub events.Subject, steps []sent) error {
	var want []string // ids with their offsets
	expect := log.At(0)
	for i, st := range steps {
		time.Sleep(time.Duration(st.Pause) * time.Millisecond)
		evs := make([]events.Event, st.Events)
		for j := range evs {
			id := fmt.Sprintf("%s-%d-%d", sub.ID, i, j)
			if !st.Old {
				id = madeAt(time.Now(), i*100+j+1000*int(sub.ID[0]))
			}
			evs[j] = l.Stamp(note(id, "x"))
		}
		x := log.Any
		if st.Exact {
			x = expect
		}
		begun := time.Now()
		ack, err := l.Append(context.Background(), sub, x, evs...)
		for try := 0; errors.Is(err, log.ErrUnknown) && s.full && try < 2; try++ {
			ack, err = l.Append(context.Background(), sub, x, evs...)
		}
		if err != nil {
			return fmt.Errorf("append %d to %s, sent %v after the silence began: %w", i, sub.Name(), begun.Sub(s.from), err)
		}
		again := 2 * time.Second // for one event; the waits for a batch grow to eight seconds
		if st.Events > 1 {
			again = 8 * time.Second
		}
		if late := time.Since(s.back); late > again+500*time.Millisecond && begun.Before(s.back) && !s.full {
			return fmt.Errorf("append %d to %s of %d events is acknowledged %v after the leader is back", i, sub.Name(), st.Events, late)
		}
		for j, e := range evs {
			want = append(want, fmt.Sprint(e.ID, ack.First+events.Offset(j)))
		}
		expect = log.At(ack.Last)
	}
	var got []string
	for rec, err := range l.Read(context.Background(), events.Range{Subject: sub}) {
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(rec.ID, rec.Offset))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s has %q, want %q", sub.Name(), got, want)
	}
	return nil
}
