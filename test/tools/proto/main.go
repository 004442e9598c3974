// Command proto writes the Go code of a .proto file next to it, with gRPC's own generators,
// whose versions go.mod pins: a module of its own, so that the exporter's has none of what
// only generating needs. Descriptors are registered under the second name.
//
//	go run . ../../../extensions/health/consumer/amdplugin/gpumetricssvc/gpumetricssvc.proto gpumetricssvc.proto
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: proto FILE.proto NAME")
	}
	dir, name := filepath.Dir(args[0]), args[1]
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	sources := protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{name: string(text)})}
	files, err := (&protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&sources),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}).Compile(ctx, name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{name}, Parameter: proto.String("paths=source_relative")}
	withImports(request, files[0], map[string]bool{})
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, generator, request, dir); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

// withImports adds a file after all that it imports, as generators want it.
func withImports(to *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		withImports(to, f.Imports().Get(i).FileDescriptor, seen)
	}
	to.ProtoFile = append(to.ProtoFile, descriptor(f))
}

func descriptor(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto() // with the comments
	}
	return protodesc.ToFileDescriptorProto(f)
}

func generate(ctx context.Context, generator string, request *pluginpb.CodeGeneratorRequest, dir string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", generator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.File {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.GetName())), []byte(f.GetContent()), 0o644); err != nil { //nolint:gosec // a source file
			return err
		}
	}
	return nil
}
