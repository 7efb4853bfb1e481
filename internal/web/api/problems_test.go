package api

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/web"
)

// documentedCode matches a row of the errors in docs/wire.md: its codes, and their status over HTTP.
var documentedCode = regexp.MustCompile("(?m)^\\| (`.+?) \\|.* (\\d+) \\|$")

// Each error of the log is a problem with a title, and with the status that docs/wire.md promises.
func TestProblemsOfTheLog(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| code | means |")
	table, _, _ = strings.Cut(table, "\n\n")
	k := newKit(t, web.Limits{}, web.Route{Method: "GET", Pattern: "/fail", Scope: web.Public, Query: "code", Do: func(c *web.Call) error {
		return &web.Problem{Code: c.Query("code")}
	}})
	tried := 0
	for _, row := range documentedCode.FindAllStringSubmatch(table, -1) {
		status, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range strings.Split(row[1], ", ") {
			code = strings.Trim(code, "`")
			t.Run("W-15 "+code, func(t *testing.T) {
				var said struct {
					Type   string `json:"type"`
					Title  string `json:"title"`
					Status int    `json:"status"`
				}
				k.t = t
				k.want(status, &said, "", "GET", "/fail?code="+code, "")
				if said.Type != "urn:tally:problem:"+code || said.Title == "" || said.Status != status {
					t.Errorf("got %+v, want the code, a title and status %d", said, status)
				}
			})
			tried++
		}
	}
	if tried < 10 {
		t.Errorf("docs/wire.md has %d codes", tried)
	}
}
