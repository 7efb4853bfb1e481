package redact

// An automaton finds a set of words in one pass over a text, one step per byte (Aho and Corasick). It ignores the case
// of ASCII letters; the rules check it.
type automaton struct {
	class [256]uint8  // class 0: bytes that are in no word
	width int         // number of classes
	next  []uint32    // indexed by state plus class; states are multiples of width
	first uint32      // states from here on end a word
	ends  [][]wordEnd // the words that they end, starting at first

	trie []node
}

// A wordEnd is a word that ends, with its meaning: the number of a rule, or escapeWord.
type wordEnd struct {
	rule int32
	size int32
}

type node struct {
	next map[byte]int
	fail int
	ends []wordEnd
}

func newAutomaton() *automaton { return &automaton{trie: []node{{}}} }

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func (a *automaton) add(word string, rule int32) {
	at := 0
	for i := range len(word) {
		c := toLower(word[i])
		to, ok := a.trie[at].next[c]
		if !ok {
			to = len(a.trie)
			if a.trie[at].next == nil {
				a.trie[at].next = make(map[byte]int)
			}
			a.trie[at].next[c] = to
			a.trie = append(a.trie, node{})
		}
		at = to
	}
	a.trie[at].ends = append(a.trie[at].ends, wordEnd{rule, int32(len(word))})
}

// build builds the table from the trie.
func (a *automaton) build() {
	a.classes()
	order := a.breadthFirst()
	id := a.number(order)
	a.next = make([]uint32, len(order)*a.width)
	for _, at := range order { // the state that fail leads to is complete
		n := &a.trie[at]
		if at != 0 {
			copy(a.next[id[at]:], a.next[id[n.fail]:int(id[n.fail])+a.width])
		}
		for c, to := range n.next {
			a.next[int(id[at])+int(a.class[c])] = id[to]
		}
	}
	a.trie = nil
}

func (a *automaton) classes() {
	for _, n := range a.trie {
		for c := range n.next {
			if a.class[c] == 0 {
				a.width++
				a.class[c] = uint8(a.width)
			}
		}
	}
	a.width++
	for c := 'a'; c <= 'z'; c++ {
		a.class[c-'a'+'A'] = a.class[c]
	}
}

// breadthFirst sets the fail links of the trie and returns its nodes, shortest first.
func (a *automaton) breadthFirst() []int {
	order := []int{0}
	for i := 0; i < len(order); i++ {
		at := order[i]
		for c, to := range a.trie[at].next {
			fail := 0
			if at != 0 {
				fail = a.follow(a.trie[at].fail, c)
			}
			a.trie[to].fail = fail
			a.trie[to].ends = append(a.trie[to].ends, a.trie[fail].ends...)
			order = append(order, to)
		}
	}
	return order
}

func (a *automaton) follow(at int, c byte) int {
	for {
		if to, ok := a.trie[at].next[c]; ok {
			return to
		}
		if at == 0 {
			return 0
		}
		at = a.trie[at].fail
	}
}

// number assigns states to nodes. States that end no word come first, so one comparison identifies them.
func (a *automaton) number(order []int) []uint32 {
	id := make([]uint32, len(order))
	n := uint32(0)
	for _, at := range order {
		if len(a.trie[at].ends) == 0 {
			id[at] = n
			n += uint32(a.width)
		}
	}
	a.first = n
	for _, at := range order {
		if len(a.trie[at].ends) > 0 {
			id[at] = n
			n += uint32(a.width)
			a.ends = append(a.ends, a.trie[at].ends)
		}
	}
	return id
}
