package podresources

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/podresources/podresourcestest"
)

// Reading an answer, beside what the generated code needs for the same.
func BenchmarkAnswer(b *testing.B) {
	for _, n := range []int{110, 1000, 10000} {
		message := listOf(b, podresourcestest.Many(n, 64)...)
		f := func(name string, read func() int) {
			b.Run(fmt.Sprintf("pods=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(message)))
				for b.Loop() {
					if got := read(); got != 64 {
						b.Fatalf("%d pods, want 64", got)
					}
				}
			})
		}
		f("own", func() int {
			a, err := decode(message)
			if err != nil {
				b.Fatal(err)
			}
			return len(a.pods)
		})
		f("generated", func() int {
			pods, err := reference(message, gpus)
			if err != nil {
				b.Fatal(err)
			}
			return len(pods)
		})
	}
}

// What a reader waits for: a Snapshot, beside a List for each read.
func BenchmarkRead(b *testing.B) {
	kubelet := podresourcestest.Start(b)
	kubelet.Set(podresourcestest.Many(1000, 64)...)
	b.Run("snapshot", func(b *testing.B) {
		r := start(b, Options{Socket: kubelet.Socket()})
		eventually.True(b, "there is an answer", func() bool { return r.Snapshot().Version > 0 })
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if len(r.Snapshot().Pods) != 64 {
					b.Error("not 64 pods")
				}
			}
		})
	})
	b.Run("list", func(b *testing.B) {
		conn, err := grpc.NewClient("unix://"+kubelet.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		client := v1.NewPodResourcesListerClient(conn)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if l, err := client.List(b.Context(), &v1.ListPodResourcesRequest{}); err != nil || len(l.PodResources) != 1000 {
					b.Error("not 1000 pods:", err)
				}
			}
		})
	})
}
