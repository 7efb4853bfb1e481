package tail

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
)

const (
	span       = 4 << 10  // bytes of a fingerprint
	wholeCheck = 64 << 20 // maximum content that is compared as a whole
)

// A print is a fingerprint of bytes under the key of the state.
type print [16]byte

// A mark is a position in the content of a file, with fingerprints of the content before it. The zero mark is the
// beginning.
type mark struct {
	Offset int64
	Head   print // of the first span; zero before the first span is complete
	Tail   print // of the last span before Offset, or of all content before it
	Chain  print // of each complete span before Offset, including the previous chain
	Weak   bool  // Chain does not start at the beginning
}

// prints computes fingerprints. It is not safe for concurrent use.
type prints struct {
	key [32]byte
	h   hash.Hash
	buf []byte // of span bytes
}

func newPrints(key [32]byte) *prints {
	return &prints{key: key, h: sha256.New(), buf: make([]byte, 0, span)}
}

func (p *prints) print(before print, b []byte) (sum print) {
	var all [sha256.Size]byte
	p.h.Reset()
	p.h.Write(p.key[:])
	p.h.Write(before[:])
	p.h.Write(b)
	copy(sum[:], p.h.Sum(all[:0]))
	return sum
}

// advance returns the mark after data, which follows m. before is the content right before m: a span, or all.
func (p *prints) advance(m mark, before, data []byte) mark {
	part := append(p.buf[:0], before[len(before)-int(m.Offset%span):]...)
	at := m.Offset - int64(len(part))
	for rest := data; len(part)+len(rest) >= span; at += span {
		n := span - len(part)
		block := rest[:n]
		if len(part) > 0 {
			block = append(part, block...)
		}
		m.Chain = p.print(m.Chain, block)
		if at == 0 {
			m.Head = m.Chain
		}
		rest, part = rest[n:], part[:0]
	}
	m.Offset += int64(len(data))
	m.Tail = p.print(print{}, lastSpan(p.buf[:0], before, data))
	return m
}

// lastSpan returns the last span of before and data, or all of them.
func lastSpan(buf, before, data []byte) []byte {
	if len(data) >= span {
		return data[len(data)-span:]
	}
	if n := span - len(data); len(before) > n {
		before = before[len(before)-n:]
	}
	return append(append(buf, before...), data...)
}

// errChanged reports that content does not match a mark.
var errChanged = errors.New("the content before the mark has changed")

// check compares content with a mark: head and tail, and all of it if whole is set and the size is below the bound. It
// returns the content right before the mark, a span or all. If the content differs, it returns errChanged.
func (p *prints) check(m mark, r io.ReaderAt, whole bool) (before []byte, err error) {
	if m.Offset == 0 {
		return nil, nil
	}
	before = make([]byte, min(m.Offset, span))
	if err := readFull(r, before, m.Offset-int64(len(before))); err != nil {
		return nil, err
	}
	if p.print(print{}, before) != m.Tail {
		return nil, errChanged
	}
	if m.Offset <= span {
		return before, nil
	}
	if whole && !m.Weak && m.Offset <= wholeCheck {
		return before, p.checkChain(m, r)
	}
	head := make([]byte, span)
	if err := readFull(r, head, 0); err != nil {
		return nil, err
	}
	if p.print(print{}, head) != m.Head {
		return nil, errChanged
	}
	return before, nil
}

func (p *prints) checkChain(m mark, r io.ReaderAt) error {
	var chain print
	buf := make([]byte, 64*span)
	for at := int64(0); at+span <= m.Offset; {
		part := buf[:min(int64(len(buf)), (m.Offset-at)/span*span)]
		if err := readFull(r, part, at); err != nil {
			return err
		}
		for i := 0; i < len(part); i += span {
			chain = p.print(chain, part[i:i+span])
		}
		at += int64(len(part))
	}
	if chain != m.Chain {
		return errChanged
	}
	return nil
}

// adopt returns the mark at a caller's position, and the content right before it. It compares the content with the data
// in pos.
func (p *prints) adopt(pos Position, r io.ReaderAt) (m mark, err error) {
	m = mark{Offset: pos.Offset, Weak: pos.Offset >= span}
	before := make([]byte, min(pos.Offset, max(span, int64(len(pos.Before)))))
	if err := readFull(r, before, pos.Offset-int64(len(before))); err != nil {
		return mark{}, err
	}
	head := make([]byte, min(pos.Offset, max(span, int64(len(pos.Head)))))
	if err := readFull(r, head, 0); err != nil {
		return mark{}, err
	}
	if !bytes.HasSuffix(before, pos.Before) || !bytes.HasPrefix(head, pos.Head) {
		return mark{}, errChanged
	}
	m.Tail = p.print(print{}, before[max(0, len(before)-span):])
	if pos.Offset >= span {
		m.Head = p.print(print{}, head[:span])
	}
	return m, nil
}

// readFull reads all of b at an offset. If the content ends before, it returns errChanged.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return errChanged
	}
	return err
}
