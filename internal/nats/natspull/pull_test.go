package natspull

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzCheck checks the requests that Check passes on for any input. The requested consumer delivers to no subject, has
// the name of the subject, acknowledges nothing and expires. Other requests are refused.
func FuzzCheck(f *testing.F) {
	f.Add("TALLY_1.x", []byte(`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","num_replicas":1}}`))
	f.Add("TALLY_1.x.tally.v1.*.*.*.*", []byte(`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","filter_subject":"tally.v1.*.*.*.*"},"action":"create"}`))
	f.Add("TALLY_1.x", []byte(`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","deliver_subject":"a","DELIVER_SUBJECT":"b"}}`))
	f.Add("TALLY_1.x", []byte(`{"stream_name":"TALLY_1","config":{"name":"x","ack_policy":"none","metadata":{"deliver_subject":"a"}}} {}`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		r, err := Check(subject, body)
		if err != nil {
			return
		}
		sent, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var asked struct {
			Stream string `json:"stream_name"`
			Config map[string]any
			Action string
		}
		if err := json.Unmarshal(sent, &asked); err != nil {
			t.Fatal(err)
		}
		for name := range asked.Config {
			if strings.HasPrefix(strings.ToLower(name), "deliver_") && name != "deliver_policy" || strings.EqualFold(name, "durable_name") || strings.HasPrefix(name, "flow") {
				t.Errorf("the request for the consumer %s is %s", name, sent)
			}
		}
		tokens := strings.SplitN(subject, ".", 3)
		if asked.Stream != tokens[0] || asked.Config["name"] != tokens[1] || asked.Action != "create" || asked.Config["ack_policy"] != "none" ||
			asked.Config["mem_storage"] != true || asked.Config["inactive_threshold"].(float64) > float64(maxIdle) {
			t.Errorf("the request is %s", sent)
		}
	})
}
