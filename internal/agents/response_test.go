package agents

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
)

// B-11: an id that is not unique is extended by its line, and is the same in a copy of the line.
func TestResponse(t *testing.T) {
	const unique = "msg_01XFDUDYJgAACzvnptvVoYEL"
	a, b := Response("chatcmpl-7", "line-a"), Response("chatcmpl-7", "line-b")
	if a == b || a != Response("chatcmpl-7", "line-a") || !events.IsUnique(a) || !strings.HasPrefix(a, "chatcmpl-7/") {
		t.Errorf("the ids of two lines are %q and %q", a, b)
	}
	if Response("a", "bc") == Response("ab", "c") || Response("x", "a", "b") == Response("x", "ab") {
		t.Error("two different pairs of id and line have the same result")
	}
	for id, want := range map[string]string{unique: unique, "": "", "chatcmpl-7": "chatcmpl-7"} {
		if got := Response(id, ""); got != want {
			t.Errorf("Response(%q) without a line is %q, want %q", id, got, want)
		}
	}
	if long := Response(strings.Repeat("x", 1000), "line"); len(long) > events.MaxResponse || !events.IsUnique(long) {
		t.Errorf("a long id became %q", long)
	}
}
