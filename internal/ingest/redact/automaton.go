package redact

// An automaton finds a set of words in one pass over a text, a step a byte
// (Aho and Corasick). Upper and lower case of ASCII are one: rules look again.
type automaton struct {
	class [256]uint8 // bytes that no word has are class 0
	width int        // classes
	next  []uint32   // of state and class, states being multiples of width
	first uint32     // states from here on end a word
	ends  [][]end    // what they end, by number from the first

	trie []node
}

// An end is a word that ends, and what it means: a rule's number, or escapeWord.
type end struct {
	rule int32
	size int32
}

type node struct {
	next map[byte]int
	fail int
	ends []end
}

func newAutomaton() *automaton { return &automaton{trie: []node{{}}} }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func (a *automaton) add(word string, rule int32) {
	at := 0
	for i := range len(word) {
		c := lower(word[i])
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
	a.trie[at].ends = append(a.trie[at].ends, end{rule, int32(len(word))})
}

// build makes the table of the trie.
func (a *automaton) build() {
	a.classes()
	order := a.breadthFirst()
	id := a.number(order)
	a.next = make([]uint32, len(order)*a.width)
	for _, at := range order { // the state that a fail leads to is done before
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

// breadthFirst sets the fails of the trie and returns its nodes, short ones first.
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

// number gives each node its state: first those that end nothing, so that one
// comparison tells.
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
