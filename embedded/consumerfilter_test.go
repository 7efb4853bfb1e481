package embedded

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// The filter counts the consumers that the server created, whatever other requests for them were refused.
func TestConsumersAreCounted(t *testing.T) {
	const created, refused = `{"name":"a"}`, `{"error":{"code":400,"description":"no"}}`
	random := rand.New(rand.NewPCG(8, 8))
	for range 200 {
		f, want := &consumerFilter{made: make(map[string]map[string]bool)}, make(map[string]bool)
		var asked []string
		steps := ""
		for range 2 + random.IntN(8) {
			key := fmt.Sprint("TALLY_1.", random.IntN(3))
			if err := f.admit("ann", key); err != nil {
				t.Fatal(err)
			}
			asked, steps = append(asked, key), steps+" ask "+key
			for len(asked) > 0 && random.IntN(3) > 0 {
				i := random.IntN(len(asked))
				key, answer := asked[i], refused
				if random.IntN(2) == 0 {
					answer, want[key] = created, true
				}
				f.settle("ann", key, []byte(answer))
				asked, steps = slices.Delete(asked, i, i+1), steps+" answer "+key+" "+answer[:8]
			}
		}
		for _, key := range asked {
			f.settle("ann", key, []byte(refused))
		}
		if got := f.made["ann"]; !maps.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", steps, got, want)
		}
	}
}

// Consumers that the server no longer has do not count, in whatever stream they were.
func TestForgottenConsumers(t *testing.T) {
	s, err := Start(t.Context(), ServerOptions{Dir: t.TempDir(), NoSync: true, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	js, err := jetstream.New(s.conns[1])
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := openConsumerFilter(s.conns[1])
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	made, want := make(map[string]bool), make(map[string]bool)
	for _, stream := range []string{"TALLY_1", "OTHER", "MISSING"} {
		for i := range 3 {
			key := fmt.Sprintf("%s.c%d", stream, i)
			if made[key] = true; i == 1 || stream == "MISSING" {
				continue
			}
			if _, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Name: fmt.Sprint("c", i)}); err != nil {
				t.Fatal(err)
			}
			want[key] = true
		}
	}
	if err := f.forget(made); err != nil || !maps.Equal(made, want) {
		t.Errorf("got %v, %v, want %v", made, err, want)
	}
}
