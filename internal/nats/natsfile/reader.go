package natsfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Message is a message in a block. The caller owns it.
type Message struct {
	Seq     uint64
	Time    int64 // when it was stored, in nanoseconds since 1970
	Subject string
	Header  string // as NATS carries it; "": none
	Data    []byte
}

// ErrUnsound reports that the block does not have the next message where it should be. Scan describes the damage.
var ErrUnsound = errors.New("damaged message")

// Numbers lists the blocks in a stream's folder by their numbers, in the order in which
// they were written.
func Numbers(dir string) (numbers []int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if n, ok := number(e.Name()); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// number returns the number of the block with this file name.
func number(name string) (n int, ok bool) {
	digits, ok := strings.CutSuffix(name, Layout.Block)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// Path returns the file of a block in a stream's folder.
func Path(dir string, number int) string {
	return filepath.Join(dir, strconv.Itoa(number)+Layout.Block)
}

// Load reads a block, into buf if it is large enough. If the block was replaced meanwhile, Load reads the other one.
func Load(path string, buf []byte) ([]byte, error) {
	for {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		buf, err = loadFile(f, buf)
		again := isReplaced(f, path)
		if closeErr := f.Close(); !again {
			return buf, errors.Join(err, closeErr)
		}
	}
}

func loadFile(f *os.File, buf []byte) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := int(info.Size())
	if n > cap(buf) {
		buf = make([]byte, n) // slices.Grow would copy the old content
	}
	buf = buf[:n]
	_, err = io.ReadFull(f, buf)
	return buf, err
}

// Begin returns the sequence in the first record of a block, or 0.
func Begin(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var head [seqEnd]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, nil // empty or torn
	}
	return binary.LittleEndian.Uint64(head[4:]) &^ (erasedBit | tombstoneBit), nil
}

// seqEnd is the number of a record's first bytes up to the end of its sequence.
const seqEnd = 12

// Reader reads the messages of a full stream, and checks that none is missing.
type Reader struct {
	dir, stream string
	match       func(subject string) bool
	next, upto  uint64 // sequences of the next record, and of the last one

	numbers []int // of the blocks that follow
	number  int   // of the block that is read
	file    *os.File
	at      int64 // where the next record begins in the file
	in      *bufio.Reader
	scanner *scanner
	buffer  []byte // holds the scanner's record
	subject string // of the record before: often the next one has the same
}

// readAhead is the number of bytes of a block that a Reader keeps in memory, or readLittle for few messages.
const (
	readAhead  = 1 << 20
	readLittle = 64 << 10
)

// NewReader returns a reader of a stream, by its folder and name: of the messages from one sequence to another, both
// inclusive. Messages whose subjects do not match come without header and data; a nil match matches all.
func NewReader(dir, stream string, from, upto uint64, match func(subject string) bool) (*Reader, error) {
	numbers, err := Numbers(dir)
	if err != nil {
		return nil, err
	}
	begin := 0
	for i, number := range slices.Backward(numbers) {
		first, err := Begin(Path(dir, number))
		if err != nil {
			return nil, err
		}
		// If the block's first sequence is damaged, the reader begins too early, which costs time, or too late, which
		// it notices.
		if first > 0 && first <= from {
			begin = i
			break
		}
	}
	size := readAhead
	if upto-from < readLittle>>10 {
		size = readLittle
	}
	return &Reader{dir: dir, stream: stream, match: match, next: from, upto: upto, numbers: numbers[begin:], in: bufio.NewReaderSize(nil, size)}, nil
}

// Next returns the next message, or io.EOF at the end. Any other error is final: ErrUnsound or a file system's error.
func (r *Reader) Next() (Message, error) {
	for r.next <= r.upto {
		e, err := r.record()
		if err != nil {
			return Message{}, err
		}
		if e.seq&(erasedBit|tombstoneBit) != 0 || e.seq < r.next {
			continue
		}
		if e.seq > r.next {
			return Message{}, fmt.Errorf("%s: message %d is missing: %w", Path(r.dir, r.number), r.next, ErrUnsound)
		}
		r.next++
		if subject := r.scanner.data[headerSize : headerSize+e.subject]; r.subject != string(subject) {
			r.subject = string(subject)
		}
		if r.match == nil || r.match(r.subject) {
			return r.scanner.message(e, r.subject), nil
		}
		return Message{Seq: e.seq, Subject: r.subject}, nil
	}
	return Message{}, io.EOF
}

// record reads the next record into the scanner. If the block was replaced since it was opened, record continues in the
// other one at the same place.
func (r *Reader) record() (extent, error) {
	e, err := r.recordOnce()
	if errors.Is(err, ErrUnsound) && r.file != nil && isReplaced(r.file, Path(r.dir, r.number)) {
		at := r.at
		r.Close()
		r.numbers = append([]int{r.number}, r.numbers...)
		if err := r.open(); err != nil {
			return e, err
		}
		if _, err := r.file.Seek(at, io.SeekStart); err != nil {
			return e, err
		}
		r.at = at
		e, err = r.recordOnce()
	}
	if err == nil {
		r.at += int64(e.end)
	}
	return e, err
}

func (r *Reader) recordOnce() (extent, error) {
	for {
		if r.file == nil {
			if err := r.open(); err != nil {
				return extent{}, err
			}
		}
		head, err := r.in.Peek(headerSize)
		if errors.Is(err, io.EOF) && len(head) == 0 {
			r.Close()
			continue
		}
		if err == nil {
			err = r.take(int(binary.LittleEndian.Uint32(head) &^ headersBit))
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return extent{}, err
		}
		e, ok := r.scanner.extent(0)
		if err != nil || !ok || e.end != len(r.scanner.data) || !r.scanner.whole(e) {
			return extent{}, fmt.Errorf("%s: after message %d: %w", Path(r.dir, r.number), r.next-1, ErrUnsound)
		}
		return e, nil
	}
}

// take reads the next n bytes into the scanner.
func (r *Reader) take(n int) (err error) {
	r.scanner.data = nil
	if n > maxRecord {
		return nil // no record is that long
	}
	r.buffer = slices.Grow(r.buffer[:0], n)[:n]
	r.scanner.data = r.buffer
	_, err = io.ReadFull(r.in, r.buffer)
	return err
}

// open opens the next block.
func (r *Reader) open() (err error) {
	if len(r.numbers) == 0 {
		return fmt.Errorf("%s ends before message %d: %w", r.dir, r.next, ErrUnsound)
	}
	r.number, r.numbers = r.numbers[0], r.numbers[1:]
	if r.file, err = os.Open(Path(r.dir, r.number)); err != nil {
		return err
	}
	r.in.Reset(r.file)
	r.at, r.scanner = 0, newScanner(r.stream, r.number, nil)
	return nil
}

// Close closes the file that is read.
func (r *Reader) Close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// message copies a record into a message with this subject.
func (s *scanner) message(e extent, subject string) Message {
	data := s.data
	m := Message{Seq: e.seq, Time: int64(binary.LittleEndian.Uint64(data[12:])), Subject: subject}
	body := data[headerSize+e.subject : e.end-hashSize]
	if e.skip > 0 {
		n := binary.LittleEndian.Uint32(body)
		m.Header, body = string(body[4:4+n]), body[4+n:]
	}
	m.Data = slices.Clone(body)
	return m
}

// Block reads single messages of a block, by their positions.
type Block struct {
	file    *os.File
	scanner *scanner
}

// OpenBlock opens a block of a stream, by the stream's folder and name.
func OpenBlock(dir, stream string, number int) (*Block, error) {
	f, err := os.Open(Path(dir, number))
	if err != nil {
		return nil, err
	}
	return &Block{f, newScanner(stream, number, nil)}, nil
}

// Message returns the message at a position that Scan or Walk named. If the block was replaced since it was opened,
// Message reads the other one. The error is ErrUnsound or a file system's error.
func (b *Block) Message(at int) (Message, error) {
	m, err := b.message(at)
	if !errors.Is(err, ErrUnsound) || !isReplaced(b.file, b.file.Name()) {
		return m, err
	}
	f, err := os.Open(b.file.Name())
	if err != nil {
		return Message{}, err
	}
	b.file.Close()
	b.file = f
	return b.message(at)
}

func (b *Block) message(at int) (Message, error) {
	unsound := fmt.Errorf("%s: at byte %d: %w", b.file.Name(), at, ErrUnsound)
	var head [headerSize]byte
	if _, err := b.file.ReadAt(head[:], int64(at)); err != nil {
		return Message{}, orUnsound(err, unsound)
	}
	n := int(binary.LittleEndian.Uint32(head[:]) &^ headersBit)
	if n > maxRecord {
		return Message{}, unsound
	}
	b.scanner.data = slices.Grow(b.scanner.data[:0], n)[:n]
	if _, err := b.file.ReadAt(b.scanner.data, int64(at)); err != nil {
		return Message{}, orUnsound(err, unsound)
	}
	e, ok := b.scanner.sound(0)
	if !ok || e.end != n || e.seq&(erasedBit|tombstoneBit) != 0 {
		return Message{}, unsound
	}
	return b.scanner.message(e, string(b.scanner.data[headerSize:headerSize+e.subject])), nil
}

// orUnsound returns unsound for the error of a block that ends too early.
func orUnsound(err, unsound error) error {
	if errors.Is(err, io.EOF) {
		return unsound
	}
	return err
}

// Close closes the block's file.
func (b *Block) Close() error { return b.file.Close() }
