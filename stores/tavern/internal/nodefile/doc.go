// Package nodefile reads and edits the file of an agent, as the original has it:
//
//	---
//	createdAt: "2026-08-22T10:00:00Z"
//	id: 8F14E45F-CEEA-467F-A0E6-6C1B1B1F1B1F
//	state: working
//	title: Kettle
//	updatedAt: "2026-08-22T10:00:00Z"
//	---
//
//	## Assignment
//
//	Boil the water.
//
//	## Commitments
//
//	- ⏳ **It boils**
//	  - Assertion: `test -e steam`
//	  - Id: 0b3c2f6e-3c0e-5c53-9d3b-6d2f0f1f7f43
//	- ❌ **Nobody is burnt**
//	  - Assertion: `make check`
//	  - Failed: exit status 2
//	    | one line more of what was said
//
// [Parse] says what it means, [Edit] makes it mean something else. An edit replaces what
// differs, token by token: keys of the front matter, the text of the assignment, the lines
// of a commitment. Whatever else somebody typed stays, byte for byte.
//
// The original writes no id of a commitment and makes a new one at each load. Here it
// follows from the agent, the description and the assertion as long as they are what they
// were; where it does not follow, it is written down, in a line that the original's reader
// passes over. Further lines of a failure are such lines too.
//
// A file of the later version, a servitor's, is read as well: its keys are name, id,
// assignment, created_at, updated_at, and it has no state of its own unless one is set.
package nodefile
