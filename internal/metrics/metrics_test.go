package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

func TestMetrics(t *testing.T) {
	m := New()
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Observer: m, Host: log.Host{Sync: func(string) error { return nil }}})
	if err != nil {
		t.Fatal(err)
	}
	used := func(context.Context) ([]projector.Usage, error) {
		return []projector.Usage{{Scope: "store", Bytes: 11}, {Scope: "owner:\"a\n", Bytes: 5, Limit: 6}, {Scope: "kind:doc", Bytes: 11}}, nil
	}
	st, err := tally.Open(t.Context(), l, tally.Config{Host: tally.Host{Usage: used}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m.Watch(st, func() (int64, uint64, error) { return 7, 9, nil })
	sub := events.Session("", "s")
	for range 3 {
		e, err := events.New("urn:t", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Append(t.Context(), sub, log.Any, e); err != nil {
			t.Fatal(err)
		}
	}
	m.Appended(1, time.Second, errors.New("refused"))
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	body := answer.Body.String()
	if strings.Contains(body, "kind:doc") {
		t.Errorf("the output has scopes without a limit:\n%s", body)
	}
	for _, want := range []string{
		"tally_append_events_total 3\n", `tally_append_duration_seconds_count{result="ok"} 3`, `tally_append_duration_seconds_count{result="error"} 1`,
		"tally_sync_group_events_sum 3\n", "tally_sync_duration_seconds_count",
		"tally_log_head_offset 3\n", "tally_log_durable_offset 3\n", "tally_store_bytes 7\n", "tally_store_free_bytes 9\n",
		`tally_quota_live_bytes{scope="store"} 11`, `tally_quota_live_bytes{scope="owner:\"a\n"} 5`, `tally_quota_limit_bytes{scope="owner:\"a\n"} 6`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the output lacks %q:\n%s", want, body)
		}
	}
}
