package perstack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/secret"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Errors of secrets. They never quote a value.
var (
	// ErrNoKey reports that a setting has secrets and that there is no key: TALLY_SECRET_KEY_FILE names no file.
	ErrNoKey = sealed.ErrNoKey
	// ErrSealBroken reports that a sealed document was changed.
	ErrSealBroken = sealed.ErrSealBroken
	// ErrNoSecrets reports that the store lacks the values for a setting's placeholders: it was imported without
	// secrets, or they were purged.
	ErrNoSecrets = errors.New("the store does not have the secrets of the setting")
)

// A SuspectError reports values that look like keys at positions where no keys are expected. Nothing was written,
// because they would stay in the log in clear. See Options.AllowSuspects.
type SuspectError struct{ Paths []string } // JSON pointers

func (e *SuspectError) Error() string {
	return "the setting has values that look like keys at " + strings.Join(e.Paths, ", ") + ", where they would not be sealed"
}

// SaveSetting stores the setting with which a run starts. The first setting of a run counts: a later call sets only the
// time of the last change to now. Secrets are sealed under the key of TALLY_SECRET_KEY_FILE and never stored in clear.
// Without a key, the error is ErrNoKey and nothing is written.
func (h *Handle) SaveSetting(ctx context.Context, s RunSetting) (log.Ack, error) {
	raw, err := s.Raw()
	if err != nil {
		return log.Ack{}, err
	}
	return h.SaveSettingRaw(ctx, raw)
}

// SaveSettingRaw is SaveSetting with a setting as JSON, byte for byte.
func (h *Handle) SaveSettingRaw(ctx context.Context, raw events.Raw) (log.Ack, error) {
	s, err := shape.ParseSetting(raw)
	if err == nil {
		err = h.belongs("runSetting", s.Job)
	}
	if err != nil {
		return log.Ack{}, err
	}
	var first events.Payload
	ack, err := h.session.Update(ctx, []string{events.TypeRunCreated}, func(now *projector.Outline) ([]events.Payload, error) {
		if have := now.Ledger().Run(shape.RunRef(s.Run)); have != nil && have.Created != 0 {
			return []events.Payload{shape.Touched(s.Run, h.st.Now().UnixMilli())}, nil
		}
		if first == nil {
			if first, err = h.created(ctx, s); err != nil {
				return nil, err
			}
		}
		return []events.Payload{first}, nil
	})
	if err == nil {
		h.noteModel(s.Run, s.Model)
	}
	return ack, err
}

// created returns the event of a run's first setting. It stores the secrets before.
func (h *Handle) created(ctx context.Context, s shape.Setting) (events.Payload, error) {
	without, values, suspects, err := secret.Take(s.Raw)
	if err != nil {
		return nil, err
	}
	if len(suspects) > 0 && !h.options.AllowSuspects {
		return nil, &SuspectError{suspects}
	}
	if len(values) == 0 {
		return s.Created(without, ""), nil
	}
	ring, err := sealed.FromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("the setting of run %q has secrets: %w", s.Run, err)
	}
	doc := events.Document(h.st.Namespace(), sealed.Kind, shape.SecretID(s.Job, s.Run))
	content, err := ring.SealDocument(doc, secret.Pack(values))
	if err != nil {
		return nil, err
	}
	// The id is derived, so that the store looks it up: a repeated append is one revision.
	rev, err := h.st.Documents().Save(ctx, doc.Kind, doc.ID, tally.Write{Data: content, ContentType: sealed.ContentType, ID: events.DerivedID("secret", h.st.Log.NewID())})
	if err != nil {
		return nil, err
	}
	return s.Created(without, events.RefOf(doc, rev.Offset)), nil
}

// Setting returns the setting of a run with its secrets, never with placeholders. If the setting was never stored, the
// error is tally.ErrNotFound. Without the key it is ErrNoKey or names the missing key. If the store lacks the secrets,
// it is ErrNoSecrets.
func (h *Handle) Setting(ctx context.Context, run string) (RunSetting, error) {
	raw, err := h.SettingBytes(ctx, run)
	if err != nil {
		return RunSetting{}, err
	}
	return ParseRunSetting(raw)
}

// SettingBytes returns the setting of a run as it was stored. After a later call it is spelled as the original writes
// it then.
func (h *Handle) SettingBytes(ctx context.Context, run string) (events.Raw, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	r := o.Ledger().Run(shape.RunRef(run))
	if r == nil || r.Setting == 0 {
		return nil, notFound("run setting not found: %s", run)
	}
	raw, ref, err := h.settingAt(ctx, r.Setting)
	if err == nil {
		raw, err = h.unseal(ctx, run, raw, ref)
	}
	if err != nil {
		return nil, err
	}
	return shape.SettingFile(raw, r.TouchedAt) // last, because it may drop members with secrets in them
}

// settingAt returns the first setting of a run with placeholders, and the document with their values, or "".
func (h *Handle) settingAt(ctx context.Context, at events.Offset) (events.Raw, events.DocRef, error) {
	p, err := h.payload(ctx, at)
	if err != nil {
		return nil, "", err
	}
	created, ok := p.(*events.RunCreated)
	if !ok {
		return nil, "", &events.DamageError{Offset: at, Err: errors.New("the record is not a setting of a run")}
	}
	return created.Setting, created.Secrets, nil
}

// unseal restores the secrets of a run's setting. A setting that was imported without secrets names no document; a
// later import may have stored one under the usual id.
func (h *Handle) unseal(ctx context.Context, run string, raw events.Raw, ref events.DocRef) (events.Raw, error) {
	if ref == "" {
		if _, err := secret.Put(raw, nil); err == nil {
			return raw, nil // it has no placeholders
		}
		ref = events.RefOf(events.Document(h.st.Namespace(), sealed.Kind, shape.SecretID(h.id, run)), 0)
	}
	doc, at, err := ref.Parse(h.st.Namespace())
	if err != nil {
		return nil, err
	}
	packed, err := h.open(ctx, doc, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc, err)
	}
	values, err := secret.Unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc, err)
	}
	return secret.Put(raw, values)
}

// open returns the content of a sealed document. After a change of keys, the revision that a setting names may be
// unreadable; the newest one has the same content.
func (h *Handle) open(ctx context.Context, doc events.Subject, at events.Offset) ([]byte, error) {
	ring, err := sealed.FromEnvironment()
	if err != nil && !errors.Is(err, ErrNoKey) {
		return nil, err
	}
	packed, err := h.openAt(ctx, ring, doc, at)
	if _, unknown := errors.AsType[*sealed.UnknownKeyError](err); at != 0 && (unknown || errors.Is(err, ErrNoSecrets)) {
		return h.openAt(ctx, ring, doc, 0)
	}
	return packed, err
}

func (h *Handle) openAt(ctx context.Context, ring *sealed.Ring, doc events.Subject, at events.Offset) ([]byte, error) {
	d, err := h.st.Loader().Document(ctx, doc, at)
	if errors.Is(err, tally.ErrNotFound) {
		return nil, ErrNoSecrets
	}
	if err != nil {
		return nil, err
	}
	return ring.OpenDocument(doc, d.Data)
}
