// What Grafana does with a panel's field configuration before the panel draws it.

import {
  FieldColorModeId,
  FieldType,
  getDisplayProcessor,
  getFieldDisplayName,
  standardTransformers,
  transformDataFrame,
  standardTransformersRegistry,
  type DataFrame,
  type Field,
  type GrafanaTheme2,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

import type { Panel } from './model';

// configure gives every column its unit, limits, thresholds and colour. Series are
// coloured by the palette, other values by thresholds, as in Grafana where nothing
// else is said.
export function configure(frames: DataFrame[], panel: Panel, theme: GrafanaTheme2, palette: boolean): DataFrame[] {
  let series = 0;
  const defaults = panel.fieldConfig?.defaults ?? {};
  for (const frame of frames) {
    for (const field of frame.fields) {
      if (field.type === FieldType.number) {
        const mode = palette ? FieldColorModeId.PaletteClassic : FieldColorModeId.Thresholds;
        field.config = { color: { mode }, ...defaults, links: undefined, ...field.config, custom: { ...lineDefaults, ...defaults.custom } };
        field.state = { seriesIndex: series++ };
      }
      override(field, frame, panel);
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
  }
  return frames;
}

// override gives a column by name what only it has: a width, colours, the texts of values. Links
// are for a mouse.
function override(field: Field, frame: DataFrame, panel: Panel) {
  for (const { matcher, properties } of panel.fieldConfig?.overrides ?? []) {
    if (matcher.id !== 'byName') {
      throw new Error(`panel ${panel.title}: nothing here matches ${matcher.id}`);
    }
    if (matcher.options === getFieldDisplayName(field, frame)) {
      for (const { id, value } of properties) {
        if (id.startsWith('custom.')) {
          field.config = { ...field.config, custom: { ...field.config.custom, [id.replace('custom.', '')]: value } };
        } else if (id !== 'links') {
          field.config = { ...field.config, [id]: value };
        }
      }
    }
  }
}

// lineDefaults are those of Grafana's time series panel.
const lineDefaults = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  barAlignment: 0,
  showPoints: 'auto',
  pointSize: 5,
  spanNulls: false,
  axisPlacement: 'auto',
  axisLabel: '',
  axisColorMode: 'text',
  scaleDistribution: { type: 'linear' },
  stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' },
  hideFrom: { legend: false, tooltip: false, viz: false },
};

standardTransformersRegistry.setInit(() =>
  [standardTransformers.organizeFieldsTransformer, standardTransformers.filterFieldsByNameTransformer].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    description: transformation.description,
    transformation: async () => transformation,
    imageDark: '',
    imageLight: '',
    editor: () => null,
  })),
);

// transform does a panel's transformations.
export async function transform(frame: DataFrame, panel: Panel): Promise<DataFrame> {
  const [out] = await firstValueFrom(transformDataFrame(panel.transformations ?? [], [frame]));
  return out;
}
