// Grafana's heatmap is no part of its published components: cells, colours and rows
// are drawn here as it draws them, upon its plot, axes and scales.

import { type DataFrame, type GrafanaTheme2, type TimeRange, getValueFormat, formattedValueToString } from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleOrientation, ScaleDistribution, UPlotChart, UPlotConfigBuilder } from '@grafana/ui';
import { interpolateOranges } from 'd3-scale-chromatic';
import type uPlot from 'uplot';

import type { Panel } from './model';

interface Bucket {
  le: number;
  counts: Map<number, number>; // by time in ms
}

// buckets turns the cumulative series of a histogram into one row a bucket.
export function buckets(frames: DataFrame[]): Bucket[] {
  const cumulative = frames
    .map((frame) => {
      const [time, value] = frame.fields;
      return { le: Number((value.labels?.le ?? '').replace('Inf', 'Infinity')), counts: new Map(time.values.map((t, i) => [t, value.values[i]])) };
    })
    .sort((a, b) => a.le - b.le);
  return cumulative.map(({ le, counts }, i) => ({
    le,
    counts: new Map([...counts].map(([t, n]) => [t, Math.max(0, n - (i > 0 ? (cumulative[i - 1].counts.get(t) ?? 0) : 0))])),
  }));
}

export function Heatmap(props: { panel: Panel; rows: Bucket[]; step: number; timeRange: TimeRange; theme: GrafanaTheme2; width: number; height: number }) {
  const { panel, rows, step, timeRange, theme, width, height } = props;
  const options = panel.options ?? {};
  const format = getValueFormat(options.yAxis?.unit ?? 'short');
  const most = Math.max(...rows.flatMap((r) => [...r.counts.values()]));

  const builder = new UPlotConfigBuilder('utc');
  builder.addScale({
    scaleKey: 'x',
    isTime: true,
    orientation: ScaleOrientation.Horizontal,
    direction: ScaleDirection.Right,
    range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()],
  });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme });
  builder.addScale({
    scaleKey: 'y',
    isTime: false,
    distribution: ScaleDistribution.Linear,
    orientation: ScaleOrientation.Vertical,
    direction: ScaleDirection.Up,
    range: () => [0, rows.length],
  });
  const label = (le: number) => (le === Infinity ? '+Inf' : formattedValueToString(format(le)));
  // As many labels as there is room for, at the upper end of their row.
  const every = Math.ceil(rows.length / Math.floor(height / 24));
  const splits = rows.map((_, i) => i + 1).filter((i) => i % every === 0);
  builder.addAxis({
    scaleKey: 'y',
    placement: AxisPlacement.Left,
    theme,
    splits,
    formatValue: (v: number) => label(rows[v - 1].le),
    grid: { show: false },
  } as Parameters<UPlotConfigBuilder['addAxis']>[0]);
  builder.addSeries({ scaleKey: 'y', theme, lineColor: 'transparent', pathBuilder: () => null } as Parameters<UPlotConfigBuilder['addSeries']>[0]);
  builder.addHook('draw', (u: uPlot) => {
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    rows.forEach(({ counts }, row) => {
      const top = u.valToPos(row + 1, 'y', true);
      const bottom = u.valToPos(row, 'y', true);
      for (const [time, count] of counts) {
        if (count <= 0) {
          continue;
        }
        const left = u.valToPos(time - step * 1000, 'x', true);
        const right = u.valToPos(time, 'x', true);
        // The scheme is turned over on dark ground: more is brighter.
        u.ctx.fillStyle = interpolateOranges(1 - (count / most) ** (options.color?.exponent ?? 0.5));
        u.ctx.fillRect(left, top, right - left - (options.cellGap ?? 1), bottom - top - (options.cellGap ?? 1));
      }
    });
    u.ctx.restore();
  });
  const times = [...new Set(rows.flatMap((r) => [...r.counts.keys()]))].sort((a, b) => a - b);
  return <UPlotChart config={builder} data={[times, times.map(() => null)]} width={width} height={height} />;
}
