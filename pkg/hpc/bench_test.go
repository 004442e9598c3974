package hpc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkLook is what is done every Period while nothing changes.
func BenchmarkLook(b *testing.B) {
	for _, files := range []int{8, 64} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			dir := b.TempDir()
			for i := range files {
				must(b, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("17\n18\n"), 0o644))
			}
			l := newLooker(New(Options{Dir: dir}))
			begin := time.Now()
			l.look(begin)
			l.look(begin.Add(quiet))
			l.look(begin.Add(raciness))
			b.ReportAllocs()
			for b.Loop() {
				l.look(begin.Add(time.Hour))
			}
			if got := len(l.Snapshot().Jobs); got != files {
				b.Fatalf("%d devices have jobs, want %d", got, files)
			}
		})
	}
}
