// Package metrics exports metrics of a process that owns a store to Prometheus. Names and units follow OpenTelemetry:
// tally_append_duration_seconds is OpenTelemetry's tally.append.duration.
package metrics

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/log"
)

// Metrics is the log's Observer, and the handler of a metrics endpoint.
type Metrics struct {
	registry *prometheus.Registry
	appends  *prometheus.HistogramVec
	appended prometheus.Counter
	syncs    prometheus.Histogram
	groups   prometheus.Histogram
	requests *prometheus.CounterVec
	streams  prometheus.Gauge
}

var _ log.Observer = (*Metrics)(nil)

// New returns metrics without observations.
func New() *Metrics {
	// From a tenth of a millisecond to six seconds, doubling each time.
	times := prometheus.ExponentialBuckets(0.0001, 2, 17)
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		appends: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tally_append_duration_seconds", Buckets: times,
			Help: "Time from the call of an append to its acknowledgement or error."}, []string{"result"}),
		appended: prometheus.NewCounter(prometheus.CounterOpts{Name: "tally_append_events_total", Help: "Events that were acknowledged."}),
		syncs: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tally_sync_duration_seconds", Buckets: times,
			Help: "Time of a sync that makes appended events durable."}),
		groups: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tally_sync_group_events", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
			Help: "Events that one sync made durable."}),
	}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tally_http_requests_total", Help: "Answers to HTTP requests."}, []string{"route", "status"})
	m.streams = prometheus.NewGauge(prometheus.GaugeOpts{Name: "tally_http_followers", Help: "Clients that follow records over HTTP."})
	m.registry.MustRegister(m.appends, m.appended, m.syncs, m.groups, m.requests, m.streams)
	return m
}

// Appended implements log.Observer.
func (m *Metrics) Appended(events int, took time.Duration, err error) {
	if err != nil {
		m.appends.WithLabelValues("error").Observe(took.Seconds())
		return
	}
	m.appends.WithLabelValues("ok").Observe(took.Seconds())
	m.appended.Add(float64(events))
}

// Answered counts an answer to an HTTP request, by the pattern of its route. followers is how many clients follow records
// then.
func (m *Metrics) Answered(route string, status, followers int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.streams.Set(float64(followers))
}

// Synced implements log.Observer.
func (m *Metrics) Synced(events int, took time.Duration) {
	m.syncs.Observe(took.Seconds())
	m.groups.Observe(float64(events))
}

// Disk returns the size of a store and the free space on its disk, in bytes.
type Disk func() (bytes int64, free uint64, err error)

// Watch adds the metrics that are computed when they are read: positions of the log and the views, quotas, and the
// disk.
func (m *Metrics) Watch(st *tally.Store, disk Disk) {
	m.registry.MustRegister(&store{st: st, disk: disk})
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Metrics that are computed when they are read.
var (
	head        = describe("tally_log_head_offset", "Offset of the last record of the log.")
	durable     = describe("tally_log_durable_offset", "Offset up to which everything survives a power cut.")
	lagEvents   = describe("tally_view_lag_events", "Durable events that a view does not show yet.", "view")
	lagSeconds  = describe("tally_view_lag_seconds", "Time since the first event was recorded that a view does not show yet.", "view")
	quarantined = describe("tally_view_quarantined_subjects", "Subjects that a view could not fold.", "view")
	storeBytes  = describe("tally_store_bytes", "Size of the store directory.")
	freeBytes   = describe("tally_store_free_bytes", "Room on its disk.")
	liveBytes   = describe("tally_quota_live_bytes", "Bytes of documents that can be read, of the store and of what has a limit.", "scope")
	limitBytes  = describe("tally_quota_limit_bytes", "How many of them there may be.", "scope")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// store collects the metrics that are computed when they are read.
type store struct {
	st   *tally.Store
	disk Disk
}

// Describe implements prometheus.Collector.
func (s *store) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{head, durable, lagEvents, lagSeconds, quarantined, storeBytes, freeBytes, liveBytes, limitBytes} {
		to <- d
	}
}

// maxCollect bounds the time of a collection, because the log may not answer.
const maxCollect = 5 * time.Second

// Collect implements prometheus.Collector. It leaves out metrics that cannot be computed.
func (s *store) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), maxCollect)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if at, err := s.st.Log.Head(ctx); err == nil {
		gauge(head, float64(at))
	}
	if at, err := s.st.Log.Durable(ctx); err == nil {
		gauge(durable, float64(at))
	}
	view := func(name string, aside int, at events.Offset) {
		gauge(quarantined, float64(aside), name)
		if lag, err := s.st.Lag(ctx, at); err == nil {
			gauge(lagEvents, float64(lag.Events), name)
			gauge(lagSeconds, lag.Age.Seconds(), name)
		}
	}
	shown := make(map[string]bool)
	for _, r := range s.st.Runners() {
		shown[r.View.Name()] = true
		view(r.View.Name(), r.Quarantined(), r.Cursor().Offset)
	}
	for name, standing := range s.ofOthers(ctx) {
		if !shown[name] {
			view(name, len(standing.Quarantined), standing.Cursor.Offset)
		}
	}
	// A store without usage returns an error, too. The name of an owner may be any text.
	usage, _ := s.st.Usage(ctx)
	for _, u := range usage {
		if u.Limit > 0 {
			gauge(limitBytes, float64(u.Limit), u.Scope)
		}
		if u.Limit > 0 || u.Scope == "store" {
			gauge(liveBytes, float64(u.Bytes), u.Scope)
		}
	}
	if bytes, free, err := s.disk(); err == nil {
		gauge(storeBytes, float64(bytes))
		gauge(freeBytes, float64(free))
	}
}

// ofOthers returns the progress of the views that programs bring, each in its highest version. Other processes may keep
// them.
func (s *store) ofOthers(ctx context.Context) map[string]catalog.Standing {
	if s.st.ViewsDir() == "" {
		return nil
	}
	files, _ := catalog.OwnIn(s.st.ViewsDir()) // metrics that cannot be computed are left out
	list := make(map[string]catalog.Standing)
	for _, f := range files {
		if _, has := list[f.Name]; has {
			continue
		}
		if standing, err := f.Standing(ctx); err == nil {
			list[f.Name] = standing
		}
	}
	return list
}
