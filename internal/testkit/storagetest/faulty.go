package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"

	"github.com/tallylog/tally/internal/layouts"
)

// A Call is a call of a Faulty's method.
type Call struct {
	Op   string // list, read, write, append, stat, delete, swap, displace, restore, sync
	Path string
	N    int // number of calls before it
}

func (c Call) String() string { return fmt.Sprintf("%s %q (call %d)", c.Op, c.Path, c.N) }

// A Fault is a way in which a call fails.
type Fault int

// Faults. Writing calls are write, swap and append.
const (
	None       Fault = iota
	Fail             // it does nothing and returns ErrFaulty
	Unanswered       // it is done but returns ErrFaulty
	Torn             // an append writes the first half and returns ErrFaulty; others as Fail
	KillBefore       // the process ends before the call
	KillHalf         // the process ends after the first half is written: of an append in the file, else under a temporary name; other calls do nothing
	KillWhole        // the process ends after everything is written under a temporary name; appends and other calls are done
	KillAfter        // the process ends after the call
)

func (f Fault) String() string {
	return [...]string{"none", "fail", "unanswered", "torn", "kill before", "kill half", "kill whole", "kill after"}[f]
}

// ErrFaulty is the error of a call that fails on purpose.
var ErrFaulty = errors.New("fails on purpose")

// A Kill is the panic of a call that ends the process: see Killed.
type Kill struct {
	Call
	Fault
}

func (k *Kill) Error() string { return fmt.Sprintf("killed: %s: %v", k.Fault, k.Call) }

// Killed calls a function that stands for a process, and returns the Kill that ended it, or nil. If the function makes
// calls in other goroutines, those need a Killed of their own.
func Killed(process func()) (kill *Kill) {
	defer func() {
		if r := recover(); r != nil {
			k, ok := r.(*Kill)
			if !ok {
				panic(r)
			}
			kill = k
		}
	}()
	process()
	return nil
}

// Faulty is a Storage that fails on purpose. Once it has killed its process, all calls return the *Kill as an error and
// do nothing: a killed process cannot act while it unwinds.
type Faulty struct {
	st   layouts.Storage
	plan func(Call) Fault

	mu   sync.Mutex
	n    int
	dead *Kill
}

// NewFaulty returns a storage in which plan chooses the fault of each call. Calls of plan do not overlap.
func NewFaulty(st layouts.Storage, plan func(Call) Fault) *Faulty {
	return &Faulty{st: st, plan: plan}
}

// Calls returns the number of calls so far.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// ask returns the fault of a call.
func (f *Faulty) ask(op, name string) (Call, Fault, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead != nil {
		return Call{}, None, f.dead
	}
	c := Call{op, name, f.n}
	f.n++
	return c, f.plan(c), nil
}

func (f *Faulty) kill(c Call, how Fault) {
	k := &Kill{c, how}
	f.mu.Lock()
	f.dead = k
	f.mu.Unlock()
	panic(k)
}

// call makes a call that has one step.
func (f *Faulty) call(op, name string, do func() error) error {
	c, fault, err := f.ask(op, name)
	if err != nil {
		return err
	}
	switch fault {
	case Fail, Torn:
		return fmt.Errorf("%v: %w", c, ErrFaulty)
	case KillBefore, KillHalf:
		f.kill(c, fault)
	}
	err = do()
	switch fault {
	case Unanswered:
		return errors.Join(err, fmt.Errorf("%v: %w", c, ErrFaulty))
	case KillWhole, KillAfter:
		f.kill(c, fault)
	}
	return err
}

// put makes a call that writes a whole file.
func (f *Faulty) put(ctx context.Context, op, name string, content func(io.Writer) error, do func(content func(io.Writer) error) error) error {
	c, fault, err := f.ask(op, name)
	if err != nil {
		return err
	}
	switch fault {
	case Fail, Torn:
		return fmt.Errorf("%v: %w", c, ErrFaulty)
	case KillBefore:
		f.kill(c, fault)
	case KillHalf, KillWhole:
		var b bytes.Buffer
		if err := content(&b); err != nil {
			return err
		}
		data := b.Bytes()
		if fault == KillHalf {
			data = data[:len(data)/2]
		}
		base := path.Base(name)
		temporary := path.Join(path.Dir(name), fmt.Sprintf(".%s.tally-tmp-killed-%d", base[:min(len(base), 100)], c.N))
		if err := f.st.Write(ctx, temporary, 0o600, Bytes(data)); err != nil {
			return err
		}
		f.kill(c, fault)
	}
	err = do(content)
	switch fault {
	case Unanswered:
		return errors.Join(err, fmt.Errorf("%v: %w", c, ErrFaulty))
	case KillAfter:
		f.kill(c, fault)
	}
	return err
}

// Bytes returns a function that writes a file's content.
func Bytes[T string | []byte](content T) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write([]byte(content))
		return err
	}
}

// List implements Storage.
func (f *Faulty) List(ctx context.Context, name string) (list []layouts.FileInfo, err error) {
	err = f.call("list", name, func() (err error) { list, err = f.st.List(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Read implements Storage.
func (f *Faulty) Read(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = f.call("read", name, func() (err error) { r, err = f.st.Read(ctx, name); return err })
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, err
	}
	return r, nil
}

// Stat implements Storage.
func (f *Faulty) Stat(ctx context.Context, name string) (e layouts.FileInfo, err error) {
	err = f.call("stat", name, func() (err error) { e, err = f.st.Stat(ctx, name); return err })
	if err != nil {
		return layouts.FileInfo{}, err
	}
	return e, nil
}

// Write implements Storage.
func (f *Faulty) Write(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) error {
	return f.put(ctx, "write", name, content, func(content func(io.Writer) error) error { return f.st.Write(ctx, name, mode, content) })
}

// Append implements Storage.
func (f *Faulty) Append(ctx context.Context, name string, content []byte) error {
	c, fault, err := f.ask("append", name)
	if err != nil {
		return err
	}
	switch half := content[:len(content)/2]; fault {
	case Fail:
		return fmt.Errorf("%v: %w", c, ErrFaulty)
	case KillBefore:
		f.kill(c, fault)
	case Torn:
		return errors.Join(f.st.Append(ctx, name, half), fmt.Errorf("%v: %w", c, ErrFaulty))
	case KillHalf:
		if err := f.st.Append(ctx, name, half); err != nil {
			return err
		}
		f.kill(c, fault)
	}
	err = f.st.Append(ctx, name, content)
	switch fault {
	case Unanswered:
		return errors.Join(err, fmt.Errorf("%v: %w", c, ErrFaulty))
	case KillWhole, KillAfter:
		f.kill(c, fault)
	}
	return err
}

// Delete implements Storage.
func (f *Faulty) Delete(ctx context.Context, name string) error {
	return f.call("delete", name, func() error { return f.st.Delete(ctx, name) })
}

// A Whole storage has all optional methods, like a folder of a file system.
type Whole interface {
	layouts.Swapper
	layouts.Syncer
	layouts.Watcher
}

// FaultyWhole is a Faulty that can swap, sync and watch. Watching has no faults.
type FaultyWhole struct {
	*Faulty
	st Whole
}

var _ Whole = (*FaultyWhole)(nil)

// NewFaultyWhole is NewFaulty for a Whole storage.
func NewFaultyWhole(st Whole, plan func(Call) Fault) *FaultyWhole {
	return &FaultyWhole{NewFaulty(st, plan), st}
}

// Swap implements layouts.Swapper. If it is killed after the swap, the displaced file still exists.
func (f *FaultyWhole) Swap(ctx context.Context, name string, mode fs.FileMode, content func(io.Writer) error) (displaced string, err error) {
	err = f.put(ctx, "swap", name, content, func(content func(io.Writer) error) (err error) {
		displaced, err = f.st.Swap(ctx, name, mode, content)
		return err
	})
	if err != nil {
		return "", err
	}
	return displaced, nil
}

// Displace implements layouts.Swapper.
func (f *FaultyWhole) Displace(ctx context.Context, name string) (displaced string, err error) {
	err = f.call("displace", name, func() (err error) { displaced, err = f.st.Displace(ctx, name); return err })
	if err != nil {
		return "", err
	}
	return displaced, nil
}

// Restore implements layouts.Swapper.
func (f *FaultyWhole) Restore(ctx context.Context, displaced, name string) error {
	return f.call("restore", name, func() error { return f.st.Restore(ctx, displaced, name) })
}

// Sync implements layouts.Syncer.
func (f *FaultyWhole) Sync(ctx context.Context, folders ...string) error {
	return f.call("sync", path.Join(folders...), func() error { return f.st.Sync(ctx, folders...) })
}

// Watch implements layouts.Watcher.
func (f *FaultyWhole) Watch(ctx context.Context, ready func(), changed func(name string)) error {
	return f.st.Watch(ctx, ready, changed)
}
