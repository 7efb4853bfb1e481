package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// The vectors are those of NIST: the first one of gcmEncryptExtIV256.rsp (CAVP) with 128 bits of content and of
// context, and the test cases 15 and 16 of the specification of GCM that was proposed to NIST.
func TestKnownAnswers(t *testing.T) {
	const spec = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
	const long = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
	for name, v := range map[string]struct{ key, nonce, plain, context, sealed string }{
		"CAVP, count 0": {"92e11dcdaa866f5ce790fd24501f92509aacf4cb8b1339d50c9c1240935dd08b", "ac93a1a6145299bde902f21a",
			"2d71bcfa914e4ac045b2aa60955fad24", "1e0889016f67601c8ebea4943bc23ad6", "8995ae2e6df3dbf96fac7b7137bae67f" + "eca5aa77d51d4a0a14d9c51e1da474ab"},
		"test case 15": {spec, "cafebabefacedbaddecaf888", long + "1aafd255", "",
			"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad" + "b094dac5d93471bdec1a502270e3cc6c"},
		"test case 16": {spec, "cafebabefacedbaddecaf888", long, "feedfacedeadbeeffeedfacedeadbeefabaddad2",
			"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662" + "76fc6ece0f4e1768cddf8853bb2d551b"},
	} {
		k, err := newKey("k", unhex(t, v.key))
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(k.aead.Seal(nil, unhex(t, v.nonce), unhex(t, v.plain), unhex(t, v.context))); got != v.sealed {
			t.Errorf("%s: got %s, want %s", name, got, v.sealed)
		}
	}
}

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	firstKey  = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	secondKey = "f0e1d2c3b4a5968778695a4b3c2d1e0f00112233445566778899aabbccddeeff"
)

func mustParse(t testing.TB, text string) *Ring {
	t.Helper()
	r, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A document that another program sealed with Node's crypto, by the description of the format in the docs: the key, the
// nonce 20 21 .. 2b, and as context "tally sealed v1\n" followed by the NATS subject of the document.
func TestDocumentOfAnotherProgram(t *testing.T) {
	const content = `{"keyID":"k1","nonce":"ICEiIyQlJicoKSor","box":"iRjHUA/0f29oXDSvrW2R240sQ0mA0glRui//aVPfxjCt"}`
	doc := events.Document("acme", Kind, "j1/r1")
	plain, err := mustParse(t, "k1:"+firstKey).OpenDocument(doc, []byte(content))
	if err != nil || string(plain) != `["a clear value"]` {
		t.Fatalf("got %q, error %v", plain, err)
	}
	box, err := ParseBox([]byte(content))
	if err != nil || string(box.Marshal()) != content {
		t.Fatalf("got %s, error %v", box.Marshal(), err)
	}
	if id := mustParse(t, firstKey).Newest(); id != "158eb6165ff8" { // computed by sha256sum
		t.Errorf("the id of a key without a name is %q", id)
	}
}

// Sealed content opens with the same ring and context, and with no other. No byte of a box can be changed.
func TestSealLaw(t *testing.T) {
	r := mustParse(t, "k1:"+firstKey+"\nk2:"+secondKey)
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		doc := events.Document(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), Kind, rapid.StringN(1, 20, 80).Draw(t, "id"))
		content, err := r.SealDocument(doc, plain)
		if err != nil {
			t.Fatal(err)
		}
		if len(plain) >= 8 && bytes.Contains(content, plain) {
			t.Fatal("the box contains the plain content")
		}
		if got, err := r.OpenDocument(doc, content); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("opened %q, error %v, want %q", got, err, plain)
		}
		for _, other := range []events.Subject{{Namespace: "c", Kind: doc.Kind, ID: doc.ID}, {Namespace: doc.Namespace, Kind: "x", ID: doc.ID},
			{Namespace: doc.Namespace, Kind: doc.Kind, ID: doc.ID + "x"}} {
			if got, err := r.OpenDocument(other, content); !errors.Is(err, ErrSealBroken) {
				t.Fatalf("opened with the context %v: got %q, error %v", other, got, err)
			}
		}
		i := rapid.IntRange(0, len(content)-1).Draw(t, "place")
		content[i] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		got, err := r.OpenDocument(doc, content)
		if _, unknown := errors.AsType[*UnknownKeyError](err); !unknown && !errors.Is(err, ErrSealBroken) {
			t.Fatalf("opened with byte %d changed: got %q, error %v", i, got, err)
		}
	})
}

// Sealing a content twice yields different boxes, each with a nonce of its own.
func TestSameContentTwice(t *testing.T) {
	r := mustParse(t, firstKey)
	a, err := r.Seal([]byte("x"), "c")
	b, err2 := r.Seal([]byte("x"), "c")
	if err := errors.Join(err, err2); err != nil || bytes.Equal(a.Nonce, b.Nonce) || bytes.Equal(a.Sealed, b.Sealed) {
		t.Errorf("%v, %v, %v", a, b, err)
	}
}

// The newest key seals, and each key of the ring opens. A missing key and a wrong one are different errors.
func TestRotation(t *testing.T) {
	before, both, after := mustParse(t, "old:"+firstKey), mustParse(t, "old:"+firstKey+"\nnew:"+secondKey), mustParse(t, "new:"+secondKey)
	old, err := before.Seal([]byte("x"), "c")
	if err != nil || old.KeyID != "old" {
		t.Fatalf("got %v, error %v", old, err)
	}
	young, err := both.Seal([]byte("x"), "c")
	if err != nil || young.KeyID != "new" || both.Newest() != "new" || !slices.Equal(both.IDs(), []string{"old", "new"}) {
		t.Fatalf("%v, %v, %v", young, both, err)
	}
	for _, box := range []Box{old, young} {
		if plain, err := both.Open(box, "c"); err != nil || string(plain) != "x" {
			t.Errorf("got %q, error %v", plain, err)
		}
	}
	if lost, ok := errors.AsType[*UnknownKeyError](second(after.Open(old, "c"))); !ok || lost.ID != "old" {
		t.Errorf("open without the key: %v", lost)
	}
	if _, err := mustParse(t, "old:"+secondKey).Open(old, "c"); !errors.Is(err, ErrSealBroken) {
		t.Errorf("open with another key of the same name: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// A nil ring has no keys, and returns ErrNoKey.
func TestNoRing(t *testing.T) {
	var none *Ring
	if _, err := none.Seal(nil, ""); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
	if _, err := none.Open(Box{KeyID: "k"}, ""); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
	if none.Newest() != "" || none.IDs() != nil {
		t.Error("a nil ring has keys")
	}
}

// No verb of fmt prints a key of a ring.
func TestRingShowsNoKey(t *testing.T) {
	r := mustParse(t, "k1:"+firstKey)
	secret := unhex(t, firstKey)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		for _, v := range []any{r, *r, r.keys} {
			text := fmt.Sprintf(verb, v)
			decimal := strings.Trim(fmt.Sprint(secret[8:12]), "[]")
			if strings.Contains(text, firstKey[16:32]) || strings.Contains(text, string(secret[8:16])) || strings.Contains(text, decimal) {
				t.Errorf("%s: got %s", verb, text)
			}
		}
	}
}

func FuzzBox(f *testing.F) {
	f.Add([]byte(`{"keyID":"k1","nonce":"ICEiIyQlJicoKSor","box":"iRjHUA/0f29oXDSvrW2R240sQ0mA0glRui//aVPfxjCt"}`))
	f.Add([]byte(`{"keyID":"k1","nonce":"","box":"AA=="}`))
	f.Add([]byte(`{"keyID":"k1","keyID":"k2"}`))
	f.Add([]byte(`"sk-secret"`))
	r := mustParse(f, "k1:"+firstKey)
	f.Fuzz(func(t *testing.T, content []byte) {
		box, err := ParseBox(content)
		if err != nil {
			if !errors.Is(err, ErrSealBroken) || len(content) > 40 && strings.Contains(err.Error(), string(content)) {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseBox(box.Marshal())
		if err != nil || again.KeyID != box.KeyID || !bytes.Equal(again.Nonce, box.Nonce) || !bytes.Equal(again.Sealed, box.Sealed) {
			t.Fatalf("the parsed form of %v is %v, error %v", box, again, err)
		}
		if plain, err := r.Open(box, "c"); err == nil {
			t.Fatalf("the invalid box %s opened: %q", content, plain)
		}
	})
}
