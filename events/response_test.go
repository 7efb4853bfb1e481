package events

import "testing"

// B-11: an id joins costs of different sessions only if it cannot be drawn twice.
func TestIsUnique(t *testing.T) { t.Run("B-11 ids that cannot be drawn twice", isUnique) }

func isUnique(t *testing.T) {
	for id, want := range map[string]bool{
		"": false, "chatcmpl-7": false, "chatcmpl-999": false, "msg_1": false, "resp_0001": false, "chatcmpl-00000000000000000017": false,
		"response0000000000000001": false, "20260815100000123456": false, "aaaaaaaaaaaaaaaaaaaaaaaa": false, "the-answer-to-the-question-of-life": false,
		"msg_01XFDUDYJgAACzvnptvVoYEL": true, "chatcmpl-B9MBs8CjcvOLX2fqhJuKRfQb5wq7c": true, "gen-1761234567-AbCdEfGhIj4lMnOpQrSt": true,
		"resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b": true, "9f8e7d6c5b4a3921": true, "9f8e7d6c5b4a392": false,
		"0f3a1f6e-5d7b-4a53-9c1e-2b7f6f0b9a11": true, "x/0F3A1F6E-5D7B-4A53-9C1E-2B7F6F0B9A11": true, "01J9ZQ4V8XK3M2N7P5R6T8W1Y0": true,
	} {
		if got := IsUnique(id); got != want {
			t.Errorf("IsUnique(%q) = %v, want %v", id, got, want)
		}
	}
}
