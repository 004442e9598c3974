package selfmetrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/protodelim"
)

// render encodes the families in every format. It drops a family that one format cannot express from all formats, so
// that all are equal. Only protobuf has counter creation times. The buffers are sized like last's.
func render(families []*dto.MetricFamily, last *rendering) (*rendering, error) {
	text, openMetrics, protobuf := bufferLike(last.text), bufferLike(last.openMetrics), bufferLike(last.protobuf)
	names := make(map[string]bool, len(families))
	for _, f := range families {
		names[f.GetName()] = true
	}
	var errs []error
	for _, f := range families {
		if len(f.GetMetric()) == 0 {
			continue
		}
		om := f
		// In OpenMetrics a counter's family loses the suffix _total, and would be declared twice if it then had the name
		// of another: go_memstats_alloc_bytes, a gauge, and go_memstats_alloc_bytes_total.
		family, isTotal := strings.CutSuffix(f.GetName(), "_total")
		if isTotal && f.GetType() == dto.MetricType_COUNTER && names[family] {
			om = untyped(f)
		}
		t, o, p := text.Len(), openMetrics.Len(), protobuf.Len()
		if err := encode(f, om, text, openMetrics, protobuf); err != nil {
			text.Truncate(t)
			openMetrics.Truncate(o)
			protobuf.Truncate(p)
			errs = append(errs, fmt.Errorf("encode family %q: %w", f.GetName(), err))
		}
	}
	return &rendering{text: text.Bytes(), openMetrics: openMetrics.Bytes(), protobuf: protobuf.Bytes()}, errors.Join(errs...)
}

func bufferLike(last []byte) *bytes.Buffer {
	return bytes.NewBuffer(make([]byte, 0, len(last)+len(last)/8))
}

func encode(f, om *dto.MetricFamily, text, openMetrics, protobuf io.Writer) error {
	if _, err := expfmt.MetricFamilyToText(text, f); err != nil {
		return err
	}
	if _, err := expfmt.MetricFamilyToOpenMetrics(openMetrics, om); err != nil {
		return err
	}
	_, err := protodelim.MarshalTo(protobuf, f)
	return err
}

// untyped returns a copy of a counter family without a type, so that its samples keep their name.
func untyped(f *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: f.Name, Help: f.Help, Unit: f.Unit, Type: dto.MetricType_UNTYPED.Enum()}
	for _, m := range f.GetMetric() {
		v := m.GetCounter().GetValue()
		out.Metric = append(out.Metric, &dto.Metric{Label: m.GetLabel(), TimestampMs: m.TimestampMs, Untyped: &dto.Untyped{Value: &v}})
	}
	return out
}
