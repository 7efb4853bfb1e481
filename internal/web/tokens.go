package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// Token is the right to use a namespace. Its text is not kept, only the hash.
type Token struct {
	Name      string // of 1 to 64 of [A-Za-z0-9_.-]
	Hash      [sha256.Size]byte
	Namespace string
	Scopes    []Scope
	Expires   time.Time // zero: never

	gone chan struct{} // closed when the token is removed
}

// Has reports whether the token has a scope.
func (t *Token) Has(s Scope) bool { return slices.Contains(t.Scopes, s) }

// Source returns the CloudEvents source of events that are appended with the token.
func (t *Token) Source() string { return "urn:tally:http:" + t.Name }

// Line returns the token's line of a file of tokens.
func (t *Token) Line() string {
	scopes := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		scopes[i] = string(s)
	}
	line := fmt.Sprintf("%s sha256:%x %s %s", t.Name, t.Hash, t.Namespace, strings.Join(scopes, ","))
	if !t.Expires.IsZero() {
		line += " expires=" + t.Expires.UTC().Format(time.RFC3339)
	}
	return line
}

// isSame reports whether the tokens give the same right to the same text.
func (t *Token) isSame(o *Token) bool { return t.Line() == o.Line() }

// expiry returns a channel that has a value when the token expires. stop releases it.
func (t *Token) expiry(now time.Time) (expired <-chan time.Time, stop func() bool) {
	if t.Expires.IsZero() {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(t.Expires.Sub(now))
	return timer.C, timer.Stop
}

// tokenPrefix begins the text of each token, so that programs that look for secrets find it.
const tokenPrefix = "tly_"

// NewText returns the text of a new token: 256 random bits.
func NewText() string {
	var bits [32]byte
	rand.Read(bits[:]) // never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
}

// HashOf returns the hash of a token's text.
func HashOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// CheckToken returns why a token cannot be used, or nil.
func CheckToken(t Token) error {
	isName := t.Name != "" && len(t.Name) <= 64 && !strings.ContainsFunc(t.Name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-')
	})
	switch {
	case !isName:
		return errors.New("the name needs 1 to 64 of [A-Za-z0-9_.-]")
	case t.Namespace == events.PersonalNamespace:
		return fmt.Errorf("no token can be of the namespace %s", events.PersonalNamespace)
	case events.ValidateNamespace(t.Namespace) != nil:
		return errors.New("the namespace needs 1 to 64 of [A-Za-z0-9_-]")
	case len(t.Scopes) == 0:
		return errors.New("the token has no scope")
	}
	for i, s := range t.Scopes {
		if !slices.Contains(Scopes, s) || slices.Contains(t.Scopes[:i], s) {
			return fmt.Errorf("want scopes of %v, each once and with commas between them", Scopes)
		}
	}
	return nil
}

// maxTokens bounds a file of tokens, in bytes.
const maxTokens = 1 << 20

// ReadTokens reads a file of tokens. A line has name, sha256:HASH, namespace and scopes, and may have expires=TIME.
// Empty lines and lines that begin with # are skipped. If another user owns the file or can read it, the error says so.
// Errors name the line, and show nothing of it.
func ReadTokens(path string) ([]Token, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var list []Token
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		if err == nil && slices.ContainsFunc(list, func(o Token) bool { return o.Name == t.Name || o.Hash == t.Hash }) {
			err = errors.New("the name or the hash is in the file twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) < 4 || len(fields) > 5 {
		return t, errors.New("want name, sha256:HASH, namespace and scopes")
	}
	digits, ok := strings.CutPrefix(fields[1], "sha256:")
	sum, err := hex.DecodeString(digits)
	if err != nil || !ok || len(sum) != sha256.Size {
		return t, errors.New("want sha256: and 64 hex digits")
	}
	t = Token{Name: fields[0], Hash: [sha256.Size]byte(sum), Namespace: fields[2]}
	for s := range strings.SplitSeq(fields[3], ",") {
		t.Scopes = append(t.Scopes, Scope(s))
	}
	if len(fields) == 5 {
		at, ok := strings.CutPrefix(fields[4], "expires=")
		if t.Expires, err = time.Parse(time.RFC3339, at); err != nil || !ok {
			return t, errors.New("want expires= and a time such as 2026-08-22T10:00:00Z")
		}
	}
	return t, CheckToken(t)
}

// readPrivate reads a file that this user alone can read.
func readPrivate(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = checkPrivate(info)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokens+1))
	if err == nil && len(text) > maxTokens {
		err = fmt.Errorf("%s: it has more than %d bytes", path, maxTokens)
	}
	return text, err
}

// LocalToken reads the token of a store's own clients from a file, and makes it if the file does not exist. It has all
// scopes. The text stays in the file, which this user alone can read.
func LocalToken(path, namespace string) (text string, t Token, err error) {
	b, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = writeNew(path, NewText()+"\n"); err == nil || errors.Is(err, fs.ErrExist) {
			b, err = readPrivate(path)
		}
	}
	if err != nil {
		return "", t, err
	}
	text = strings.TrimSpace(string(b))
	if !strings.HasPrefix(text, tokenPrefix) || len(text) != len(NewText()) {
		return "", t, fmt.Errorf("%s: it has no token: remove the file, and the next start makes one", path)
	}
	t = Token{Name: "local", Hash: HashOf(text), Namespace: namespace, Scopes: slices.Clone(Scopes)}
	return text, t, CheckToken(t)
}

// writeNew writes a file that must not exist, readable for this user alone.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// Tokens are the tokens that are valid now.
type Tokens struct {
	read func() ([]Token, error)
	now  func() time.Time

	mu   sync.Mutex // guards the fields below
	list []*Token
	said string // the error of the last reload
}

// NewTokens returns the tokens that read returns. Reload calls it again.
func NewTokens(read func() ([]Token, error), now func() time.Time) (*Tokens, error) {
	t := &Tokens{read: read, now: now}
	return t, t.Reload()
}

// Reload reads the tokens again. After an error those from before stay valid. Streams of removed and of changed tokens
// end.
func (t *Tokens) Reload() error {
	use, err := t.Renew()
	if err == nil {
		use()
	}
	return err
}

// Renew reads the tokens again, and returns the function that makes them valid.
func (t *Tokens) Renew() (use func(), err error) {
	next, err := t.read()
	return func() { t.replace(next) }, err
}

func (t *Tokens) replace(next []Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Token
	for _, n := range next {
		i := slices.IndexFunc(t.list, func(o *Token) bool { return o.isSame(&n) })
		if i >= 0 {
			list = append(list, t.list[i])
			continue
		}
		n.gone = make(chan struct{})
		list = append(list, &n)
	}
	for _, old := range t.list {
		if !slices.Contains(list, old) {
			close(old.gone)
		}
	}
	t.list, t.said = list, ""
}

// Run reloads the tokens every second until ctx is done. It calls failed once for each new error.
func (t *Tokens) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := t.Reload(); err != nil && t.isNew(err) {
			failed(err)
		}
	}
}

// isNew reports whether an error is another one than the last time.
func (t *Tokens) isNew(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.said != err.Error()
	t.said = err.Error()
	return is
}

// find returns the token with a text, or nil. The time that it takes does not depend on the text.
func (t *Tokens) find(text string) *Token {
	sum := HashOf(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *Token
	for _, k := range t.list {
		if subtle.ConstantTimeCompare(sum[:], k.Hash[:]) == 1 {
			found = k
		}
	}
	if found == nil || !found.Expires.IsZero() && !t.now().Before(found.Expires) {
		return nil
	}
	return found
}

// Len returns the number of tokens.
func (t *Tokens) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.list)
}
