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
// [Parse] returns the file's contents, [Edit] changes them. An edit replaces only the differing parts: keys of the
// front matter, the text of the assignment, the lines of a commitment. All other bytes stay.
//
// The original writes no ids of commitments, and makes new ones at each load. Here an id follows from the agent, the
// description and the assertion of the commitment. If the text changes and the id stays, Edit writes the id into a line
// that the original's reader ignores. Further lines of a failure are ignored by it as well.
//
// The file of the later version, a servitor's, is read as well. Its keys are name, id, assignment, created_at and
// updated_at, and it has no state unless one is set.
package nodefile
