package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/sealed"
)

// keysCheck is what remarks on the file of keys are called. The store works without one.
const keysCheck = "keys"

// keys looks at the file of keys, and whether anything is sealed that wants one.
func (x *examination) keys() {
	ring, err := sealed.FromEnvironment()
	switch n := x.sealedDocuments(); {
	case errors.Is(err, sealed.ErrNoKey) && n > 0:
		x.warn(keysCheck, fmt.Sprintf("%s sealed, and %s names no file with keys: nothing of that opens", plain.Count(n, "document")+isAre(n), sealed.Variable),
			"name the file, where this user is to open them; nothing else needs it")
	case errors.Is(err, sealed.ErrNoKey):
		x.ok(keysCheck, "%s names no file, and what holds secrets does not go in", sealed.Variable)
	case err != nil:
		x.bad(keysCheck, cli.ExitCode(err), err.Error(), "tally secrets --help says what such a file is. Until it is one, nothing sealed opens and settings with secrets do not go in")
	case x.isBeside(os.Getenv(sealed.Variable)):
		x.warn(keysCheck, "the file of keys lies in the store: who gets a copy of one has both", "move it elsewhere, and keep a copy that is not beside the store either")
	default:
		x.ok(keysCheck, "%s in %s, and %q seals; tally secrets check opens what is sealed", plain.Count(len(ring.IDs()), "key"), os.Getenv(sealed.Variable), ring.Newest())
	}
}

// sealedDocuments counts those of all namespaces, as far as that is known without opening the
// store.
func (x *examination) sealedDocuments() (n int) {
	if x.config.Backend != config.Local || x.place.State != embedded.Present {
		return 0
	}
	r, err := catalog.Open(x.ctx, x.place.Dir)
	if err != nil {
		return 0 // which another remark says
	}
	defer r.Close()
	live, err := r.Live(x.ctx)
	if err != nil {
		return 0
	}
	for _, l := range live {
		if l.Kind == sealed.Kind {
			n += l.Documents
		}
	}
	return n
}

// isBeside reports whether a file is in the directory of the store, whatever links lead there.
func (x *examination) isBeside(path string) bool {
	if x.config.Backend != config.Local {
		return false
	}
	file, err := filepath.EvalSymlinks(path)
	dir, err2 := filepath.EvalSymlinks(x.config.Store)
	if errors.Join(err, err2) != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	return strings.HasPrefix(file, dir+string(filepath.Separator))
}

// verifyKeys opens what is sealed, and says which keys are missing. Without any that is what
// keys has said.
func (e *examined) verifyKeys(ctx context.Context, st *tally.Store) error {
	ring, err := sealed.FromEnvironment()
	if err != nil {
		return nil // which keys has said
	}
	c := newSecretsChecked(ring)
	if err := eachSecret(ctx, st, c.add); err != nil {
		return err
	}
	switch code := cli.ExitCode(closedCode(c.Closed)); code {
	case cli.OK:
		e.Remarks = append(e.Remarks, remark{Check: keysCheck, Level: fine, What: fmt.Sprintf("%d of %d sealed %s", c.Open, c.Documents, opens(c.Documents))})
	default:
		e.Remarks = append(e.Remarks, remark{Check: keysCheck, Level: problem, code: code, Do: "tally secrets check names them; put a key that is missing back into the file, anywhere but last",
			What: fmt.Sprintf("%d of %d sealed %s%s", c.Open, c.Documents, opens(c.Documents), c.missing())})
	}
	return nil
}

// missing names the keys that documents need and that are not there.
func (c *secretsChecked) missing() string {
	var ids []string
	for _, k := range c.Keys {
		if !k.Known {
			ids = append(ids, fmt.Sprintf("%q", k.ID))
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Join(ids, ", ") + " not in the file of keys"
}
