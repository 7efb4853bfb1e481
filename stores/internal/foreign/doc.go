// Package foreign holds what the layouts of the stores share below their
// exported surface: how files are read and spelled again, how a file is kept whole
// as a document, and how events are appended in batches.
package foreign
