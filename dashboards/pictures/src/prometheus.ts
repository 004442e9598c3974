// Prometheus' answers as Grafana's data frames.

import { FieldType, type DataFrame, type Field, type Labels } from '@grafana/data';

interface Series {
  metric: Labels;
  value?: [number, string];
  values?: Array<[number, string]>;
}

async function ask(path: string, parameters: Record<string, string>): Promise<Series[]> {
  const response = await fetch(`/prometheus/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const answer = await response.json();
  if (answer.status !== 'success') {
    throw new Error(`${answer.error}: ${parameters.query}`);
  }
  return answer.data.result;
}

// range is one frame for each series; times and steps are in seconds.
export async function range(expr: string, from: number, to: number, step: number, legend: string): Promise<DataFrame[]> {
  // Grafana aligns the range with the step, so that points do not wander.
  const [start, end] = [from, to].map((t) => Math.floor(t / step) * step);
  const series = await ask('query_range', { query: expr, start: `${start}`, end: `${end}`, step: `${step}` });
  return series.map(({ metric, values }) => ({
    length: values!.length,
    fields: [
      // The interval tells the panel where a gap is.
      { name: 'Time', type: FieldType.time, config: { interval: step * 1000 }, values: values!.map(([t]) => t * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        config: { displayNameFromDS: legendFor(legend, metric) },
        labels: metric,
        values: values!.map(([, v]) => Number(v.replace('Inf', 'Infinity'))),
      },
    ],
  }));
}

// instant is one frame with a row for each series and a column for each label.
export async function instant(expr: string, time: number): Promise<DataFrame> {
  const series = await ask('query', { query: expr, time: `${time}` });
  const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort();
  const column = (name: string, type: FieldType, of: (s: Series) => unknown): Field => ({ name, type, config: {}, values: series.map(of) });
  return {
    length: series.length,
    fields: [
      column('Time', FieldType.time, (s) => s.value![0] * 1000),
      ...labels.map((l) => column(l, FieldType.string, (s) => s.metric[l] ?? '')),
      column('Value', FieldType.number, (s) => Number(s.value![1].replace('Inf', 'Infinity'))),
    ],
  };
}

function legendFor(legend: string, labels: Labels): string {
  return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
}
