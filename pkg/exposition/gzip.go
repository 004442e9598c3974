package exposition

import (
	"fmt"
	"time"

	"github.com/klauspost/compress/gzip"
)

// appender collects what is written to it.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// compress makes a compressed page from the plain one. It has a lock of its own,
// so that those who want the plain page do not wait for it.
func (r *Renderer) compress(f Format, s *slot) *Page {
	r.zipMu.Lock()
	defer r.zipMu.Unlock()
	if p := s.fresh(r.generation(r.board.Load()), time.Now().UnixNano()); p != nil {
		return p
	}
	plain := r.Page(f, false)
	defer plain.Release()

	start := time.Now()
	p := s.blank()
	p.data = r.deflate(p.data[:0], plain.data)
	p.generation, p.expires = plain.generation, plain.expires
	s.publish(p)
	r.metrics.rendered(f, true, len(p.data), time.Since(start))
	return p
}

// deflate appends plain, compressed. The caller holds zipMu.
func (r *Renderer) deflate(to, plain []byte) []byte {
	r.out.b = to
	if r.zip == nil {
		w, err := gzip.NewWriterLevel(&r.out, gzip.BestSpeed)
		if err != nil {
			panic(fmt.Sprintf("exposition: make compressor: %v", err)) // only for an illegal level
		}
		r.zip = w
	} else {
		r.zip.Reset(&r.out)
	}
	_, err := r.zip.Write(plain)
	if err == nil {
		err = r.zip.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("exposition: compress into memory: %v", err)) // appender never fails
	}
	to = r.out.b
	r.out.b = nil
	return to
}
