// What the dashboard known as 12239 shows, https://grafana.com/grafana/dashboards/12239:
// titles, expressions and units are NVIDIA's, the places are ours.

import type { Dashboard, Panel } from './model';

const selector = '{instance=~"$instance", gpu=~"$gpu"}';
const steps = (yellow: number, red: number) => ({
  mode: 'absolute',
  steps: [
    { color: 'green', value: -Infinity },
    { color: '#EAB839', value: yellow },
    { color: 'red', value: red },
  ],
});

let next = 0;

function lines(title: string, expr: string, unit: string, x: number, y: number, w: number): Panel {
  return {
    id: ++next,
    type: 'timeseries',
    title,
    gridPos: { x, y, w, h: 8 },
    targets: [{ refId: 'A', expr, legendFormat: 'GPU {{gpu}}' }],
    fieldConfig: { defaults: { unit, custom: { lineWidth: 2, fillOpacity: 10, showPoints: 'never' } } },
    options: { legend: { displayMode: 'table', placement: 'right', showLegend: true, calcs: ['mean', 'lastNotNull', 'max'] } },
  };
}

// number stands for a gauge, which is no part of Grafana's published components.
function number(title: string, expr: string, unit: string, yellow: number, red: number, x: number, y: number): Panel {
  return {
    id: ++next,
    type: 'stat',
    title,
    gridPos: { x, y, w: 6, h: 8 },
    targets: [{ refId: 'A', expr, legendFormat: '' }],
    fieldConfig: { defaults: { unit, thresholds: steps(yellow, red) as never } },
    options: { reduceOptions: { calcs: ['mean'] }, colorMode: 'value', graphMode: 'area', textMode: 'value' },
  };
}

export const dashboard12239: Dashboard = {
  title: 'NVIDIA DCGM Exporter Dashboard (12239)',
  templating: {
    list: [
      { name: 'instance', label: 'instance', type: 'query', allValue: '.*' },
      { name: 'gpu', label: 'gpu', type: 'query', allValue: '.*' },
    ],
  },
  panels: [
    lines('GPU Temperature', `DCGM_FI_DEV_GPU_TEMP${selector}`, 'celsius', 0, 0, 18),
    number('GPU Avg. Temp', `avg(DCGM_FI_DEV_GPU_TEMP${selector})`, 'celsius', 83, 87, 18, 0),
    lines('GPU Power Usage', `DCGM_FI_DEV_POWER_USAGE${selector}`, 'watt', 0, 8, 18),
    number('GPU Power Total', `sum(DCGM_FI_DEV_POWER_USAGE${selector})`, 'watt', 4200, 5200, 18, 8),
    lines('GPU SM Clocks', `DCGM_FI_DEV_SM_CLOCK${selector} * 1000000`, 'hertz', 0, 16, 12),
    lines('GPU Utilization', `DCGM_FI_DEV_GPU_UTIL${selector}`, 'percent', 12, 16, 12),
    lines('GPU Framebuffer Mem Used', `DCGM_FI_DEV_FB_USED${selector}`, 'decmbytes', 0, 24, 12),
    lines('Tensor Core Utilization', `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE${selector}`, 'percentunit', 12, 24, 12),
  ],
};
