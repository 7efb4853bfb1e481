//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// A caseStep is a command of a case and what its output must show.
type caseStep struct {
	run   string   // a line of shell, in an environment with CASE and an empty HOME that holds the case's home
	exit  int      // the exit code of the line
	has   []string // regular expressions that the output matches
	lacks []string // regular expressions that the output does not match
	spent string   // the exact sum in USD, reported and computed, if run is cost -o json
	same  string   // a file that has the output, byte for byte; a path below CASE
}

// cases are the inputs below testdata/cases, which have the shapes of public reports. The expected.md of each states
// the source and the right value. If the first step of a case does not import the home, the case begins with tally
// watch --once.
var cases = []struct {
	name  string
	steps []caseStep
}{
	{"01-cache-write-1h", []caseStep{
		{run: "tally cost -o json", spent: "0.19953", has: []string{`"cacheWrite": 30000`}},
	}},
	{"02-partial-output", []caseStep{
		{run: "tally cost -o json", spent: "0.018312", has: []string{`"output": 350,`}},
	}},
	{"03-synthetic-error", []caseStep{
		{run: "tally cost --by model -o json", spent: "0.0006", has: []string{`"events": 1,`}, lacks: []string{"synthetic", "unknown"}},
	}},
	{"04-long-context", []caseStep{
		{run: "tally cost --prices", has: []string{`(?m)^claude-sonnet-4-5-20250929 +2025-09-29 +- +- +6 +22\.5 +0\.6 `}},
		{run: "tally cost -o json", spent: "0.201"},
	}},
	{"05-web-search", []caseStep{{run: "tally cost -o json", spent: "0.0345"}}},
	{"06-fast-mode", []caseStep{{run: "tally cost -o json", spent: "0.315"}}},
	{"07-codex-token-classes", []caseStep{
		{run: "tally cost -o json", spent: "3.063873", has: []string{`"cacheWrite": 1000`}, lacks: []string{"unknown", "partial"}},
	}},
	{"08-codex-totals-only", []caseStep{{run: "tally cost -o json", spent: "0.024125"}}},
	{"09-codex-fork-baseline", []caseStep{{run: "tally cost -o json", spent: "0.192"}}},
	{"10-codex-spawn-replay", []caseStep{{run: "tally cost -o json", spent: "0.172"}}},
	{"11-codex-thread-name", []caseStep{
		{run: `tally watch --once && tally ls`, has: []string{`gpt-5\.5 +Cake count\n`}},
		{run: `echo '{"id":"01a00600-0000-7000-8000-000000000001","thread_name":"Pies"}' >>"$HOME/.codex/session_index.jsonl"; tally watch --once && tally import codex`, has: []string{"0 events added"}},
		{run: "tally ls", has: []string{`gpt-5\.5 +Pies\n`}},
	}},
	{"12-codex-ide-title", []caseStep{
		{run: "tally show last", has: []string{`(?m)^  user +Count the cakes$`, `(?m)^  system +# Context from my IDE setup:`}},
		{run: "tally ls", has: []string{`gpt-5\.5 +Count the cakes\n`}},
	}},
	{"13-claude-ide-title", []caseStep{
		{run: "tally show last", has: []string{`(?m)^  user +Rewrite the menu as one page$`, `(?m)^  meta +<ide_opened_file>`}},
		{run: "tally ls", has: []string{`sonnet-4-6 +Rewrite the menu as one page\n`}},
	}},
	{"14-compact-twice", []caseStep{
		{run: "tally show last", has: []string{`main, 10 turns\n`}},
		{run: `tally search '"Menu ready"'`, has: []string{`^[^\n]* @10 [^\n]*\n[^\n]*\n$`}},
		{run: "tally export last --format claude-code -C out >&2; cat out/*/*", same: "home/.claude/projects/-srv-shop/11111111-1111-4111-8111-111111111111.jsonl"},
		{run: "tally cost -o json", spent: "0.006"},
	}},
	{"15-no-request-id", []caseStep{
		{run: "tally cost --by model", has: []string{
			`(?m)^glm-4\.6 .* 1500 +30 +0 +0 +2$`, `(?m)^kimi-k2\.5 .* 1000 +50 +0 +0 +1$`, `(?m)^spent .* 2500 +80 +0 +0 +3$`}},
	}},
	{"16-local-day", []caseStep{
		{run: "tally ls 2>&1", has: []string{`(?m)^times are in UTC$`}},
		{run: "TZ=America/Los_Angeles tally cost --by day 2>&1", has: []string{`(?m)^2026-08-01 `, `(?m)^days are those of America/Los_Angeles$`}, lacks: []string{"2026-08-02"}},
		{run: "tally cost --by day --tz America/Los_Angeles -o json", has: []string{`"key": "2026-08-01"`, `"tz": "America/Los_Angeles"`}},
		{run: "tally cost --by day --tz UTC -o json", has: []string{`"key": "2026-08-02"`}},
	}},
	{"17-project-renamed", []caseStep{
		{run: `tally watch --once >/dev/null; . "$CASE/steps.sh" >/dev/null 2>&1; tally export --all --format claude-code -C out`, has: []string{`^Exported 1 session`}},
		{run: `cmp .claude/projects/-srv-shop2/*.jsonl out/-srv-shop2/*.jsonl; ls out`, has: []string{`^-srv-shop2\n$`}},
		{run: "tally search Ready", has: []string{`^[^\n]* @[0-9]+ [^\n]*\n[^\n]*\n$`}},
		{run: "tally cost -o json", spent: "0.018312"},
		{run: "tally ls", has: []string{`^[^\n]*\nclaude/-srv-shop/11111111-1111-4111-8111-111111111111 +transcript +7 +[^\n]* 2026-08-01 10:00 [^\n]*\n$`}},
	}},
	{"18-linked-project", []caseStep{
		{run: `mkdir -p .claude/projects; ln -s "$CASE/real/projects/-srv-shop" .claude/projects/-srv-shop; ln -s .. .claude/projects/loop
			tally watch --once 2>&1`, has: []string{`/-srv-shop: is a link to /.*/real/projects/-srv-shop and is not followed: import /`, `/loop: is a link to `, `there are no files to read`}},
		{run: `tally import .claude 2>&1`, exit: 3, has: []string{`/-srv-shop: is a link to /.*/real/projects/-srv-shop and is not followed: import /`}},
		{run: `tally sources 2>&1`, has: []string{`/-srv-shop: is a link to /`}},
		{run: `tally import "$CASE/real/projects/-srv-shop"`, has: []string{`^Imported 1 session`}},
		{run: "tally cost -o json", spent: "0.018312"},
	}},
	{"19-gemini-two-files", []caseStep{{run: "tally cost -o json", spent: "0.012625"}}},
	{"20-gemini-history-overwritten", []caseStep{
		{run: "tally show last --all", has: []string{`Count the cakes`, `Forty\.`, `<session_context>`}},
		{run: "tally export last --format gemini -C out >&2; cat out/*/chats/*", same: "home/.gemini/tmp/shop/chats/session-2026-06-22T13-46-f74ed4b6.jsonl"},
	}},
	{"21-openclaw", []caseStep{
		{run: `tally import "$HOME/.openclaw" 2>&1`, has: []string{`^Imported 1 session \(1 new\)`}},
		{run: `tally import --format pi "$HOME"/.openclaw/agents/main/sessions/*.jsonl 2>&1`, has: []string{`1 unchanged\): 0 events added`}},
		{run: "tally ls", has: []string{`(?m)^pi/5de701fc-0000-4000-8000-000000000001 +transcript +2 +1 +0\.004175 `}},
	}},
	{"22-stub-and-next", []caseStep{
		{run: "tally show last", has: []string{`main, 4 turns\n`, `(?m)^  assistant  Two\.$`}},
		{run: "tally search Two", has: []string{`(?m)^  .*⟦Two⟧\.$`}},
		{run: "tally export last --format claude-code -C out >&2; cat out/*/*", same: "home/.claude/projects/-srv-shop/11111111-1111-4111-8111-111111111111.jsonl"},
		{run: "tally cost -o json", spent: "0.01818"},
	}},
	{"23-mixed-folder", []caseStep{
		{run: `tally import "$CASE/mixed" 2>&1`, exit: 3, has: []string{`copilot\.jsonl: its lines are not of a known agent`}, lacks: []string{`(?m)^[^ ]*a\.jsonl:`, `(?m)^[^ ]*codex-copy`}},
		{run: `tally import --format codex "$CASE/mixed/codex-copy.jsonl" 2>&1`, has: []string{`1 unchanged\): 0 events added`}},
		{run: `tally export --all --format codex -C out && cat out/codex-copy.jsonl`, has: []string{`^Exported 1 session`}},
		{run: "tally ls", has: []string{`(?m)^codex/01a00600-0000-7000-8000-000000000001 +transcript +2 `, `(?m)^claude/mixed/a +transcript +2 `}, lacks: []string{"copilot", " 0 +[01] "}},
	}},
	{"24-file-overwritten", []caseStep{
		{run: "tally watch --once"},
		{run: `f=$(ls "$HOME"/.claude/projects/-srv-shop/*.jsonl); head -1 "$f" | sed 's/Plan it/hello blank/; s/00000001-0000/000000ff-0000/' >"$HOME/x"
			cat "$HOME/x" >"$f"; tally watch --once 2>&1`, has: []string{"stays readable in the log"}},
		{run: "tally show last --all", has: []string{`main, 1 turn\b`, `(?s)hello blank.*not in effect, 6 turns.*Plan it.*Ready`}},
		{run: "tally search Ready", has: []string{`Ready`}},
		{run: "tally cost -o json", spent: "0.018312"},
		{run: `tally fork last --at @12 --as claude-code --into "$HOME/back"; cat "$HOME"/back/-srv-shop/*.jsonl`, has: []string{"Plan it", "Ready"}},
	}},
	{"25-title-stays", []caseStep{
		{run: "tally ls", has: []string{`transcript +4 .*cake-plan\n`}},
	}},
	{"26-snapshot-first", []caseStep{
		{run: `f=$(ls "$HOME"/.claude/projects/-srv-shop/*.jsonl); cp "$f" all; head -1 all >"$f"; tally watch --once && cp all "$f" && tally watch --once && tally daemon views --once`},
		{run: "tally ls", has: []string{` 2026-08-01 10:00  shop `}},
	}},
	{"27-result-without-call", []caseStep{
		{run: "tally show last", has: []string{"main, 3 turns", "found it"}},
	}},
	{"28-verify-large-turns", []caseStep{
		{run: `f="$HOME/.claude/projects/-srv-shop/33333333-3333-4333-8333-333333333333.jsonl"
			python3 "$CASE/gen.py" "$f" 800 2; mv "$f" "$HOME/all"; : >"$f"
			for k in ` + tier("40 240 400", "40 80 120 160 200 240 280 320 400 480 560 640 720 800") + `; do
				head -$k "$HOME/all" | tail -c +$(( $(wc -c <"$f") + 1 )) >>"$f"; tally watch --once >/dev/null 2>&1
			done; tally verify`},
	}},
	{"29-cost-after-import", []caseStep{
		{run: `for s in 1 2 3 4 5 6; do python3 "$CASE/../28-verify-large-turns/gen.py" "$HOME/.claude/projects/-srv-shop$s/3333333$s-3333-4333-8333-333333333333.jsonl" 1600 $s; done
			tally watch --once >/dev/null 2>&1; tally cost -o json`, spent: "5.112"},
		{run: "tally cost -o json", spent: "5.112"},
	}},
	{"30-models-of-2026", []caseStep{
		{run: "tally cost --by model -o json", spent: "0.4887", lacks: []string{"unknown", "partial"}},
	}},
	{"31-secrets-by-name", []caseStep{
		{run: "tally show last --raw", has: []string{
			`DATABASE_PASSWORD=\[redacted:password\]"`, `\\"password\\":\\"\[redacted:password\]\\"`, `CLOUDFLARE_API_TOKEN=\[redacted:secret\]"`, `notion :: \[redacted:notion\]"`,
			`keep :: max_tokens=4096, the password field must not be empty, commit 3f786850e387550fdab836ed7e6dc881de23001b"`},
			lacks: []string{"Vb7tQ2mX", "gT5kW9qL", "h7Kq2LmP", "ntn_"}},
	}},
}

// tier returns one of two texts: that of the default tier or that of CI's.
func tier(everybody, full string) string {
	if testkit.Full() {
		return full
	}
	return everybody
}

// Each input of a public report has its right value, also from rebuilt views. The default tier plays about half of the
// inputs and rebuilds every fourth; CI plays all.
func TestCases(t *testing.T) {
	known := map[string]bool{}
	for i, c := range cases {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testkit.Sample(t, 4)
			if len(c.steps) == 0 {
				t.Fatal("the case has no steps")
			}
			playCase(t, c.name, c.steps, i%4 == 0 || testkit.Full())
		})
	}
	folders, err := filepath.Glob("testdata/cases/[0-9]*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("found no cases: %v", err)
	}
	for _, folder := range folders {
		if !known[filepath.Base(folder)] {
			t.Errorf("no row for %s", folder)
		}
	}
}

// playCase runs the steps of a case in a home of its own. If the case is rebuilt, a last step that only reads is
// played a second time from rebuilt views, and its output stays the same.
func playCase(t *testing.T, name string, steps []caseStep, rebuilt bool) {
	folder, err := filepath.Abs(filepath.Join("testdata/cases", name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(steps[0].run, "python3") {
		_, err := exec.LookPath("python3")
		testkit.Needs(t, err == nil, "python3")
	}
	env := caseEnv(t, folder)
	if !strings.Contains(steps[0].run, "tally watch") && !strings.Contains(steps[0].run, "tally import") {
		runCase(t, env, caseStep{run: "tally watch --once && tally daemon views --once"})
	}
	for i, step := range steps {
		out := runCase(t, env, step)
		step.check(t, folder, out)
		verb := strings.Fields(step.run)[1]
		if rebuilt && i == len(steps)-1 && (verb == "cost" || verb == "show" || verb == "ls" || verb == "search") {
			runCase(t, env, caseStep{run: "tally rebuild"})
			if again := runCase(t, env, step); again != out {
				t.Errorf("%s after a rebuild: got\n%s\nwant\n%s", step.run, again, out)
			}
		}
	}
}

// caseEnv returns an environment in which tally knows only a copy of the case's home.
func caseEnv(t *testing.T, folder string) []string {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if from := filepath.Join(folder, "home"); exists(from) {
		if err := os.CopyFS(home, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "TZ=UTC", "CASE=" + folder, "HOME=" + home, "TALLY_STORE=" + filepath.Join(dir, "store")}
	for _, name := range []string{"STATE", "CONFIG", "DATA"} {
		env = append(env, "XDG_"+name+"_HOME="+filepath.Join(dir, strings.ToLower(name)))
	}
	return env
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// runCase runs a step and returns its standard output.
func runCase(t *testing.T, env []string, step caseStep) string {
	t.Helper()
	var out, errw bytes.Buffer
	c := exec.CommandContext(t.Context(), "sh", "-c", step.run)
	for _, entry := range env {
		if home, ok := strings.CutPrefix(entry, "HOME="); ok {
			c.Dir = home
		}
	}
	c.Env, c.Stdout, c.Stderr = env, &out, &errw
	err := c.Run()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != step.exit {
		t.Errorf("%s: got exit code %d, want %d\n%s%s", step.run, code, step.exit, out.String(), errw.String())
	}
	return out.String()
}

func (step caseStep) check(t *testing.T, folder, out string) {
	t.Helper()
	for _, want := range step.has {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: want a match of %s in\n%s", step.run, want, out)
		}
	}
	for _, not := range step.lacks {
		if found := regexp.MustCompile(not).FindString(out); found != "" {
			t.Errorf("%s: got %q in\n%s", step.run, found, out)
		}
	}
	if step.spent != "" {
		step.checkSpent(t, out)
	}
	if step.same != "" {
		want, err := os.ReadFile(filepath.Join(folder, step.same))
		if err != nil || string(want) != out {
			t.Errorf("%s: %v: the bytes differ\n%s", step.run, err, out)
		}
	}
}

func (step caseStep) checkSpent(t *testing.T, out string) {
	t.Helper()
	var report struct {
		Spent struct {
			Computed, Reported string
			Unknown            int
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%s: %v\n%s", step.run, err, out)
	}
	if s := report.Spent; s.Computed+s.Reported != step.spent || s.Unknown != 0 {
		t.Errorf("%s: got computed %q, reported %q, unknown %d, want %s", step.run, s.Computed, s.Reported, s.Unknown, step.spent)
	}
}
