package apitest

import (
	"maps"
	"slices"
	"strings"
)

// Pod returns a pod's metadata.
func Pod(namespace, name, uid string, labels map[string]string) Object {
	return Object{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": Object{"namespace": namespace, "name": name, "uid": uid, "labels": labels},
	}
}

// Attributes are attributes of a device by name: texts and whole numbers.
type Attributes map[string]any

// Slice returns a driver's only ResourceSlice of resource.k8s.io/v1 on a node. The pool has the node's name.
func Slice(driver, node string, devices map[string]Attributes) Object {
	list := []Object{}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		typed := Object{}
		for key, v := range devices[name] {
			switch v := v.(type) {
			case string:
				typed[key] = Object{"string": v}
			case int:
				typed[key] = Object{"int": v}
			}
		}
		list = append(list, Object{"name": name, "attributes": typed})
	}
	return Object{
		"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1",
		"metadata": Object{"name": node + "-" + strings.ReplaceAll(driver, ".", "-")},
		"spec": Object{
			"driver": driver, "nodeName": node,
			"pool":    Object{"name": node, "generation": 1, "resourceSliceCount": 1},
			"devices": list,
		},
	}
}
