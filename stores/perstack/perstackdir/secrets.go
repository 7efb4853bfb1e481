package perstackdir

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/stores/internal/sessiondir"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// keyring opens and seals secrets, or has the error why it cannot.
type keyring struct {
	ring *sealed.Ring
	err  error
}

// open reads the keys.
func (l Layout) open() keyring {
	if l.Keys == nil {
		return keyring{err: sealed.ErrNoKey}
	}
	ring, err := l.Keys()
	if err == nil && ring.Newest() == "" {
		err = sealed.ErrNoKey
	}
	return keyring{ring, err}
}

// setting is a run's setting with its secrets separated.
type setting struct {
	shape.Setting
	raw      events.Raw // with placeholders
	values   []secret.Value
	suspects []string
}

// sum returns the hash of the setting without its secrets.
func (s setting) sum() string { return sumOfSetting(s.raw) }

// sumOfSetting hashes a setting with placeholders. Their numbers follow from their order, so they are left out.
func sumOfSetting(raw events.Raw) string {
	return sessiondir.SumOf(placeholder.ReplaceAll(raw, []byte(`"tally:secret:"`)))
}

var placeholder = regexp.MustCompile(`"tally:secret:[0-9]+"`)

// names lists the positions of secrets for a report.
func (s setting) names() string {
	names := make([]string, len(s.values))
	for i, v := range s.values {
		names[i] = v.Path
	}
	return strings.Join(names, ", ")
}

// takeSecrets separates the secrets of a setting.
func (v *value) takeSecrets(s shape.Setting) (err error) {
	v.setting.Setting = s
	v.setting.raw, v.setting.values, v.setting.suspects, err = secret.Take(v.raw)
	v.setting.Raw, v.raw = nil, nil // the values must not be written anywhere
	return err
}

// secretOf returns the document with the secrets of a run's setting.
func secretOf(ns, job, run string) events.Subject {
	return events.Document(ns, sealed.Kind, shape.SecretID(job, run))
}

// privateOf returns the document of a kept file that is sealed.
func privateOf(doc events.Subject) events.Subject {
	return events.Document(doc.Namespace, sealed.Kind, doc.ID)
}

// guard checks whether a setting with secrets can be imported.
func (jf *jobFolder) guard(v *value) {
	switch {
	case len(v.setting.suspects) > 0:
		why := "values look like keys where no keys are expected, at " + strings.Join(v.setting.suspects, ", ")
		v.Value = false
		jf.useless(v.File, 0, why)
	case len(v.setting.values) == 0:
	case jf.In.Options.NoSecrets:
		v.Problem(0, fmt.Sprintf("%s left out, replaced by placeholders: %s", countSecrets(len(v.setting.values)), v.setting.names()))
	case jf.keys.err != nil:
		jf.leaveOut(v.File, fmt.Sprintf("the setting has %s", countSecrets(len(v.setting.values))))
	}
}

// mayKeep reports whether a file may be kept whole. A file that may hold secrets is sealed. Without a key it is
// reported and left out, and the store's version stays.
func (jf *jobFolder) mayKeep(f *sessiondir.File, why string) bool {
	if !jf.isSecretive(f) || jf.keys.err == nil && !jf.In.Options.NoSecrets {
		return true
	}
	jf.leaveOut(f, why)
	return false
}

// leaveOut reports a file that is not imported because there is no key.
func (jf *jobFolder) leaveOut(f *sessiondir.File, why string) {
	jf.out[f.Path] = true
	reason := "the values of secrets are to be left out"
	if !jf.In.Options.NoSecrets {
		reason = jf.keys.err.Error()
	}
	f.Problem(0, fmt.Sprintf("%s; not imported: %s", why, reason))
}

func countSecrets(n int) string {
	if n == 1 {
		return "1 secret"
	}
	return fmt.Sprintf("%d secrets", n)
}

// withSecrets replaces the placeholders by their values. If it cannot, problem is the reason, and the placeholders
// stay. content is the document with the values, or nil.
func (k keyring) withSecrets(raw events.Raw, doc events.Subject, content []byte) (whole events.Raw, problem string) {
	values, err := k.values(doc, content)
	if err == nil {
		whole, err = secret.Put(raw, values)
	}
	if err != nil {
		return raw, "secrets are replaced by placeholders: " + err.Error()
	}
	return whole, ""
}

func (k keyring) values(doc events.Subject, content []byte) ([]secret.Value, error) {
	switch {
	case content == nil:
		return nil, errNoValues
	case k.err != nil:
		return nil, k.err
	}
	plain, err := k.ring.OpenDocument(doc, content)
	if err != nil {
		return nil, err
	}
	return secret.Unpack(plain)
}

// file opens a sealed file.
func (k keyring) file(doc events.Subject, content []byte) ([]byte, error) {
	switch {
	case doc.Kind != sealed.Kind:
		return content, nil
	case k.err != nil:
		return nil, fmt.Errorf("the file is kept sealed: %w", k.err)
	}
	return k.ring.OpenDocument(doc, content)
}
