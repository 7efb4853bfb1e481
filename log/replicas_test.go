package log

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The leader is the first of the replicas, and the others follow by name. Without a cluster the server leads itself.
func TestReplicasOf(t *testing.T) {
	peers := []*jetstream.PeerInfo{{Name: "n4", Lag: 4, Active: 12 * time.Second}, {Name: "n3", Offline: true, Active: time.Minute},
		{Name: "n2", Current: true}, {Name: "n1", Current: true, Lag: 12}}
	others := []string{"n1 is 12 behind", "n2 is current", "n3 is offline, seen 1m0s ago", "n4 is not current, 4 behind, seen 12s ago"}
	for _, c := range []struct {
		name string
		info *jetstream.ClusterInfo
		want []string
	}{
		{"no cluster", nil, []string{"alone leads"}},
		{"one replica in a cluster", &jetstream.ClusterInfo{Leader: "n2"}, []string{"n2 leads"}},
		{"a leader", &jetstream.ClusterInfo{Leader: "n9", Replicas: peers}, append([]string{"n9 leads"}, others...)},
		{"no leader", &jetstream.ClusterInfo{Replicas: peers}, others},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, r := range replicasOf(c.info, "alone") {
				got = append(got, r.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
