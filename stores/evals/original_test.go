package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
)

// system is the common interface of tally and the model of the original, as far as the fixes need it.
type system interface {
	create(id string) (existed bool, err error)
	createdAt(id string) string
	save(id string, d *evals.Data) error
	load(id string) (*evals.Data, error)
	earlier(id string) []string // texts of all contents that can still be read
	saveRun(conversation, kind, id, result string) error
	runs(conversation string) []string
	versions(conversation, id string) []string
	stale(conversation, id string) (stale, known bool)
	runTime(conversation, id string) (string, bool) // of a trajectory, typed
	record(id string, d *evals.Data, crashAfter int)
	project(name string) system // the store as another project sees it
	escapes(id string) bool     // whether a file lies outside of the base afterwards
}

// checkFix checks a fix: tally keeps the promise on this backend, and the same check fails for the original.
func checkFix(t *testing.T, st *tally.Store, check func(system) error) {
	t.Helper()
	own, err := st.In(st.Namespace() + "-fix")
	if err != nil {
		t.Fatal(err)
	}
	if err := check(ourStore{t.Context(), own}); err != nil {
		t.Errorf("tally: %v", err)
	}
	if err := check(newOriginal()); err == nil {
		t.Error("the check passes for the original")
	}
}

// ourStore implements system by tally.
type ourStore struct {
	ctx context.Context
	st  *tally.Store
}

func (o ourStore) create(id string) (bool, error) {
	_, made, err := evals.Create(o.ctx, o.st, id)
	return made.Existed, err
}

func (o ourStore) createdAt(id string) string {
	return string(need(evals.Of(o.st, id).CreatedAt(o.ctx)))
}

func (o ourStore) save(id string, d *evals.Data) error {
	_, _, err := evals.Save(o.ctx, o.st, id, d)
	return err
}

func (o ourStore) load(id string) (*evals.Data, error) {
	return evals.Of(o.st, id).Load(o.ctx)
}

func (o ourStore) earlier(id string) []string {
	c := evals.Of(o.st, id)
	var list []string
	s := need(c.Session().Load(o.ctx, ""))
	for _, interval := range s.History.Live(s.Offset()) {
		for at := interval.From; at <= interval.To; at++ {
			d, err := c.LoadAt(o.ctx, at.String())
			if err == nil && !slices.Contains(list, texts(d)) {
				list = append(list, texts(d))
			}
		}
	}
	return list
}

func (o ourStore) saveRun(conversation, kind, id, result string) error {
	_, err := evals.Of(o.st, conversation).Run(evals.RunType(kind), id).Save(o.ctx, []byte(result))
	return err
}

func (o ourStore) runs(conversation string) []string {
	var list []string
	for _, r := range need(evals.Of(o.st, conversation).ListRuns(o.ctx)) {
		list = append(list, string(r.Type())+"/"+r.ID())
	}
	return list
}

func (o ourStore) versions(conversation, id string) []string {
	r := evals.Of(o.st, conversation).Run(evals.TrajectoryRun, id)
	var list []string
	for _, v := range need(r.Versions(o.ctx)) {
		list = append(list, string(need(r.LoadVersion(o.ctx, v.Version)).Raw))
	}
	return list
}

func (o ourStore) stale(conversation, id string) (bool, bool) {
	s := need(evals.Of(o.st, conversation).Run(evals.TrajectoryRun, id).Stale(o.ctx))
	return s == evals.Stale, s != evals.NotKnown
}

func (o ourStore) runTime(conversation, id string) (string, bool) {
	m, err := need(evals.Of(o.st, conversation).Run(evals.TrajectoryRun, id).Load(o.ctx)).Trajectory()
	if err != nil {
		return "", false
	}
	at, ok := m.Timestamp.Time()
	return at.UTC().Format("2006-01-02 15:04"), ok
}

func (o ourStore) record(id string, d *evals.Data, crashAfter int) {
	c := evals.Of(o.st, id)
	for _, s := range d.Steps[:crashAfter] {
		need(c.Append(o.ctx, s))
	}
}

func (o ourStore) project(name string) system {
	return ourStore{o.ctx, need(o.st.In(o.st.Namespace() + "-" + name))}
}

func (o ourStore) escapes(id string) bool {
	return !strings.HasPrefix(path.Clean(".tally/"+evals.Of(o.st, id).Path()), ".tally/conversations/")
}

// original is a model of the system that tally replaces: files that are overwritten whole. It behaves as the original
// in every call.
type original struct {
	base  string
	files map[string]string
	order []string // order in which a directory lists its entries: undefined, here the order of writing
	clock *int
}

func newOriginal() *original {
	return &original{base: ".tally", files: make(map[string]string), clock: new(int)}
}

func (o *original) write(name, content string) {
	name = path.Join(o.base, name) // an id with .. leaves the base
	if _, ok := o.files[name]; !ok {
		o.order = append(o.order, name)
	}
	o.files[name] = content
}

func (o *original) read(name string) (string, error) {
	content, ok := o.files[path.Join(o.base, name)]
	if !ok {
		return "", errors.New("ENOENT")
	}
	return content, nil
}

func (o *original) create(id string) (bool, error) {
	*o.clock++
	o.write("conversations/"+id+"/meta.json", fmt.Sprintf(`{"id":%q,"createdAt":"T%d"}`, id, *o.clock))
	return false, nil
}

func (o *original) createdAt(id string) string {
	text, err := o.read("conversations/" + id + "/meta.json")
	if err != nil {
		return ""
	}
	var meta struct{ CreatedAt string }
	if err := json.Unmarshal([]byte(text), &meta); err != nil {
		return ""
	}
	return meta.CreatedAt
}

func (o *original) save(id string, d *evals.Data) error {
	text, err := evals.Encode(d)
	if err == nil {
		o.write("conversations/"+id+"/conversation.jsonl", string(text))
	}
	return err
}

func (o *original) load(id string) (*evals.Data, error) {
	text, err := o.read("conversations/" + id + "/conversation.jsonl")
	if err != nil {
		return nil, err
	}
	return evals.Decode([]byte(text))
}

func (o *original) earlier(id string) []string {
	d, err := o.load(id)
	if err != nil {
		return nil
	}
	return []string{texts(d)}
}

func (o *original) saveRun(conversation, kind, id, result string) error {
	o.write("conversations/"+conversation+"/runs/"+kind+"/"+id+".json", result)
	return nil
}

func (o *original) runs(conversation string) []string {
	var list []string
	for _, kind := range []string{"tally", "trajectory"} {
		for _, name := range o.order {
			if file, ok := strings.CutPrefix(name, path.Join(o.base, "conversations", conversation, "runs", kind)+"/"); ok {
				list = append(list, kind+"/"+strings.TrimSuffix(file, ".json"))
			}
		}
	}
	return list
}

func (o *original) versions(conversation, id string) []string {
	text, err := o.read("conversations/" + conversation + "/runs/trajectory/" + id + ".json")
	if err != nil {
		return nil
	}
	return []string{text}
}

func (o *original) stale(string, string) (bool, bool) { return false, false }

// runTime returns nothing: the original declares a date, but JSON.parse returns a string.
func (o *original) runTime(string, string) (string, bool) { return "", false }

// record writes at the end, so a crash before it leaves nothing.
func (o *original) record(id string, d *evals.Data, crashAfter int) {
	if crashAfter == len(d.Steps) {
		_ = o.save(id, d)
	}
}

// project returns the same folder: two projects that share a store share its ids.
func (o *original) project(string) system { return o }

func (o *original) escapes(id string) bool {
	o.write("conversations/"+id+"/meta.json", "{}")
	for name := range o.files {
		if !strings.HasPrefix(name, ".tally/conversations/") {
			return true
		}
	}
	return false
}

// The fixes. Each is a promise that the original does not keep.

func fixCreateTwice(sys system) error { // T-08
	if _, err := sys.create("x"); err != nil {
		return err
	}
	first := sys.createdAt("x")
	existed, err := sys.create("x")
	if err != nil || !existed || sys.createdAt("x") != first {
		return fmt.Errorf("the second call found it: %v, creation times %s and %s, error %v", existed, first, sys.createdAt("x"), err)
	}
	return nil
}

func fixOldContent(sys system) error { // T-10
	for _, text := range []string{"old", "new"} {
		if err := sys.save("x", &evals.Data{ID: "x", Steps: saidSteps(text)}); err != nil {
			return err
		}
	}
	if list := sys.earlier("x"); !slices.Equal(list, []string{"old", "new"}) {
		return fmt.Errorf("the readable contents are %q", list)
	}
	return nil
}

func fixZeroSteps(sys system) error { // T-15
	if err := sys.save("x", &evals.Data{ID: "other", Metadata: []byte(`{"a":1}`)}); err != nil {
		return err
	}
	d, err := sys.load("x")
	if err != nil || d.ID != "other" || string(d.Metadata) != `{"a":1}` {
		return fmt.Errorf("got %+v, error %v", d, err)
	}
	return nil
}

func fixRunOrder(sys system) error { // T-16
	ids := []string{"run-30-a", "run-200-b", "run-30-0", "plain", "run-4-z"}
	for _, kind := range []string{"trajectory", "tally"} {
		for _, id := range ids {
			if err := sys.saveRun("x", kind, id, resultOf(kind)); err != nil {
				return err
			}
		}
	}
	want := strings.Fields("tally/run-4-z tally/run-30-0 tally/run-30-a tally/run-200-b tally/plain trajectory/run-4-z trajectory/run-30-0 trajectory/run-30-a trajectory/run-200-b trajectory/plain")
	if got := sys.runs("x"); !slices.Equal(got, want) {
		return fmt.Errorf("the order is %q", got)
	}
	return nil
}

func fixRunHistory(sys system) error { // T-20
	for _, result := range []string{`{"n":1}`, `{"n":2}`} {
		if err := sys.saveRun("x", "trajectory", "run-1-a", result); err != nil {
			return err
		}
	}
	if got := sys.versions("x", "run-1-a"); !slices.Equal(got, []string{`{"n":1}`, `{"n":2}`}) {
		return fmt.Errorf("the versions are %q", got)
	}
	return nil
}

func fixRunDate(sys system) error { // T-22
	if err := sys.saveRun("x", "trajectory", "run-1-a", trajectoryRun); err != nil {
		return err
	}
	if at, ok := sys.runTime("x", "run-1-a"); !ok || at != "2026-01-23 12:35" {
		return fmt.Errorf("the time is %q, %v", at, ok)
	}
	return nil
}

func fixJudged(sys system) error { // T-29
	d := &evals.Data{ID: "x", Steps: saidSteps("a", "b")}
	if err := errors.Join(sys.save("x", d), sys.saveRun("x", "trajectory", "run-1-a", `{}`)); err != nil {
		return err
	}
	if stale, known := sys.stale("x", "run-1-a"); stale || !known {
		return fmt.Errorf("before a change of the conversation: stale %v, known %v", stale, known)
	}
	if err := sys.save("x", &evals.Data{ID: "x", Steps: saidSteps("recorded again")}); err != nil {
		return err
	}
	if stale, known := sys.stale("x", "run-1-a"); !stale || !known {
		return fmt.Errorf("after a change of the conversation: stale %v, known %v", stale, known)
	}
	return nil
}

func fixEscape(sys system) error { // T-30
	for _, id := range []string{"../x", "../../etc/passwd", "a/../../../b"} {
		if sys.escapes(id) {
			return fmt.Errorf("the file of the id %q is outside of the base", id)
		}
	}
	return nil
}

func fixCrash(sys system) error { // T-32
	sys.record("x", &evals.Data{ID: "x", Steps: saidSteps("a", "b", "c")}, 2)
	d, err := sys.load("x")
	if err != nil || texts(d) != "a,b" {
		return fmt.Errorf("after the crash: %v, error %v", d, err)
	}
	return nil
}

func fixProjects(sys system) error { // T-37
	one, two := sys.project("one"), sys.project("two")
	if err := errors.Join(one.save("golden", &evals.Data{ID: "golden", Steps: saidSteps("one")}),
		two.save("golden", &evals.Data{ID: "golden", Steps: saidSteps("two")})); err != nil {
		return err
	}
	d, err := one.load("golden")
	if err != nil || texts(d) != "one" {
		return fmt.Errorf("the content in project one is %v, error %v", d, err)
	}
	return nil
}

// The model behaves as the original: where both should agree, they do.
func TestOriginalModel(t *testing.T) {
	for name, sys := range map[string]system{"tally": ourStore{t.Context(), storetest.Memory(t, tally.Config{})}, "original": newOriginal()} {
		d := &evals.Data{ID: "x", Metadata: []byte(`{"a":1}`), Steps: saidSteps("a", "b")}
		if err := errors.Join(sys.save("x", d), sys.saveRun("x", "trajectory", "run-1-a", `{"n":1}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := sys.load("x")
		if err != nil || texts(got) != "a,b" || string(got.Metadata) != `{"a":1}` || len(got.Steps) != 2 {
			t.Errorf("%s: got %+v, error %v", name, got, err)
		}
		if runs := sys.runs("x"); !slices.Equal(runs, []string{"trajectory/run-1-a"}) {
			t.Errorf("%s: got %q", name, runs)
		}
		if _, err := sys.load("nobody"); err == nil {
			t.Errorf("%s: a missing conversation was loaded", name)
		}
	}
}
