package erasure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

// JournalFile is the name of the file with the plan that a store's owner carries out. The owner writes it before it
// changes anything, and removes it last.
const JournalFile = "erasing.json"

const (
	journalVersion = 1
	maxJournal     = 256 << 20 // bytes
)

// journal is a plan as stored. Subjects have the form of NATS, because their ids may have any bytes, and each is written
// once.
type journal struct {
	Version   int             `json:"version"`
	Receipt   string          `json:"receipt"`
	Namespace string          `json:"namespace"`
	By        string          `json:"by"`
	Reason    string          `json:"reason,omitempty"`
	Scope     string          `json:"scope"`
	At        time.Time       `json:"at"`
	Names     []string        `json:"names"`    // of subjects
	Subjects  int             `json:"subjects"` // the first ones of Names
	Records   []journalRecord `json:"records"`
	Unreached []string        `json:"unreached,omitempty"`
}

type journalRecord struct {
	Offset  events.Offset `json:"offset"`
	Subject int           `json:"subject"` // in Names
	Bytes   int           `json:"bytes"`
	Turns   []int         `json:"turns,omitempty"`
	Remains []byte        `json:"remains,omitempty"`
	Copies  []journalCopy `json:"copies,omitempty"`
}

type journalCopy struct {
	Index   int    `json:"index"`
	Turns   []int  `json:"turns,omitempty"`
	Remains []byte `json:"remains,omitempty"`
}

// Encode returns the content of a file with the plan. Its errors are those of Validate.
func (p Plan) Encode() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("erasure: %w", err)
	}
	j := journal{Version: journalVersion, Receipt: p.Receipt, Namespace: p.Namespace, By: p.By, Reason: p.Reason, Scope: p.Scope, At: p.At,
		Subjects: len(p.Subjects), Unreached: p.Unreached}
	numbers := make(map[events.Subject]int)
	number := func(s events.Subject) int {
		n, ok := numbers[s]
		if !ok {
			n = len(j.Names)
			numbers[s], j.Names = n, append(j.Names, s.NATS())
		}
		return n
	}
	for _, s := range p.Subjects {
		number(s)
	}
	for _, r := range p.Records {
		out := journalRecord{Offset: r.Offset, Subject: number(r.Subject), Bytes: r.Bytes, Turns: r.Turns, Remains: r.Remains}
		for _, c := range r.Copies {
			out.Copies = append(out.Copies, journalCopy(c))
		}
		j.Records = append(j.Records, out)
	}
	text, err := statefile.Encode(j)
	if err == nil && len(text) > maxJournal {
		err = fmt.Errorf("erasure: the plan has %d bytes, at most %d are allowed", len(text), maxJournal)
	}
	return text, err
}

// Decode reads what Encode wrote. Its errors name path, and are those of package statefile.
func Decode(path string, text []byte) (p Plan, err error) {
	var j journal
	if err := statefile.Decode(path, text, journalVersion, &j); err != nil {
		return p, err
	}
	if p, err = j.plan(); err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Plan{}, &statefile.DamageError{Path: path, Err: err}
	}
	return p, nil
}

func (j journal) plan() (Plan, error) {
	p := Plan{Receipt: j.Receipt, Namespace: j.Namespace, By: j.By, Reason: j.Reason, Scope: j.Scope, At: j.At, Unreached: j.Unreached}
	subs := make([]events.Subject, len(j.Names))
	for i, name := range j.Names {
		var err error
		if subs[i], err = events.ParseNATS(name); err != nil {
			return p, err
		}
	}
	if j.Subjects < 0 || j.Subjects > len(subs) {
		return p, fmt.Errorf("subjects: %d of %d names", j.Subjects, len(subs))
	}
	p.Subjects = subs[:j.Subjects:j.Subjects]
	for _, r := range j.Records {
		if r.Subject < 0 || r.Subject >= len(subs) {
			return p, fmt.Errorf("records: %v: name %d of %d", r.Offset, r.Subject, len(subs))
		}
		out := Record{Offset: r.Offset, Subject: subs[r.Subject], Bytes: r.Bytes, Turns: r.Turns, Remains: r.Remains}
		for _, c := range r.Copies {
			out.Copies = append(out.Copies, Copy(c))
		}
		p.Records = append(p.Records, out)
	}
	return p, nil
}

// Load reads the plan that a store's owner carries out. ok reports that there is one. If the file is damaged, the error
// is a *statefile.DamageError; if a newer tally wrote it, a *statefile.NewerError.
func Load(dir string) (p Plan, ok bool, err error) {
	path := filepath.Join(dir, JournalFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err == nil {
		p, err = Decode(path, text)
	}
	return p, err == nil, err
}

// Pending reports whether a store has a plan, which may be damaged.
func Pending(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, JournalFile))
	return err == nil
}

// Begin writes the plan into a store, and syncs it. From then on every owner of the store carries it out.
func (p Plan) Begin(dir string) error {
	text, err := p.Encode()
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, JournalFile), text, 0o600, durable.WithSync)
}

// End removes the plan from a store, because it was carried out. A missing plan is no error.
func End(dir string) error {
	if err := os.Remove(filepath.Join(dir, JournalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncPath(dir)
}
