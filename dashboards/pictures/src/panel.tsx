import { type DataFrame, type GrafanaTheme2, type TimeRange, reduceField, FieldType } from '@grafana/data';
import { BigValue, PanelChrome, TimeSeries, type VizLegendOptions } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

import { configure, transform } from './fields';
import { buckets, Heatmap } from './heatmap';
import type { Panel, Picture } from './model';
import { instant, range } from './prometheus';
import { interpolate, stepFor } from './variables';

export interface Loaded {
  panel: Panel;
  step: number;
  frames: DataFrame[];
}

// load asks for what a panel shows.
export async function load(panel: Panel, picture: Picture, theme: GrafanaTheme2, pixels: number): Promise<Loaded> {
  const [from, to] = [picture.from / 1000, picture.to / 1000];
  const step = stepFor(to - from, pixels);
  const answers = await Promise.all(
    (panel.targets ?? []).map(async (target) => {
      const expr = interpolate(target.expr, picture.dashboard, picture.variables, step);
      return target.instant ? [await instant(expr, to)] : range(expr, from, to, step, target.legendFormat);
    }),
  );
  let frames = answers.flat().filter((f) => f.length > 0);
  if (panel.type === 'table' && frames.length > 0) {
    frames = [await transform(frames[0], panel)];
  }
  return { panel, step, frames: configure(frames, panel, theme, panel.type === 'timeseries') };
}

interface Props extends Loaded {
  picture: Picture;
  timeRange: TimeRange;
  theme: GrafanaTheme2;
  width: number;
  height: number;
}

// PanelOf is a panel in Grafana's frame.
export function PanelOf(props: Props) {
  const { panel, frames, width, height } = props;
  return (
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
      {(w, h) => (frames.length === 0 ? <Empty height={h} text={panel.fieldConfig?.defaults.noValue} /> : <Content {...props} width={w} height={h} />)}
    </PanelChrome>
  );
}

function Empty({ height, text }: { height: number; text?: string }) {
  return <div style={{ height, display: 'flex', alignItems: 'center', justifyContent: 'center', opacity: 0.6 }}>{text ?? 'No data'}</div>;
}

function Content(props: Props) {
  const { panel, frames, step, timeRange, theme, width, height } = props;
  switch (panel.type) {
    case 'timeseries':
      return (
        <TimeSeries frames={frames} timeRange={timeRange} timeZone="utc" width={width} height={height} legend={panel.options!.legend as VizLegendOptions} />
      );
    case 'heatmap':
      return <Heatmap panel={panel} rows={buckets(frames)} step={step} timeRange={timeRange} theme={theme} width={width} height={height} />;
    case 'table':
      return <TableNG data={frames[0]} sortBy={panel.options!.sortBy} width={width} height={height} fieldConfig={{ defaults: {}, overrides: [] }} enableVirtualization={false} />;
    case 'stat':
      return <Value {...props} />;
    default:
      throw new Error(`panel ${panel.title} is of the type ${panel.type}, which nothing here draws`);
  }
}

// Value is one number.
function Value({ panel, frames, theme, width, height }: Props) {
  const field = frames[0].fields.find((f) => f.type === FieldType.number)!;
  const calc: string = panel.options!.reduceOptions.calcs[0];
  const value = field.display!(reduceField({ field, reducers: [calc] })[calc]);
  return (
    <BigValue
      theme={theme}
      width={width}
      height={height}
      value={value}
      colorMode={panel.options!.colorMode}
      graphMode={panel.options!.graphMode}
      textMode={panel.options!.textMode}
      text={panel.options!.text}
    />
  );
}
