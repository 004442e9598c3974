// What the harness reads of a dashboard's JSON. Field names are Grafana's.

import type { FieldConfig } from '@grafana/data';

export interface Target {
  refId: string;
  expr: string;
  legendFormat: string;
  format?: string;
  instant?: boolean;
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: Target[];
  fieldConfig?: {
    defaults: FieldConfig;
    overrides?: Array<{ matcher: { id: string; options: string }; properties: Array<{ id: string; value: unknown }> }>;
  };
  options?: Record<string, any>;
  transformations?: Array<{ id: string; options: Record<string, unknown> }>;
}

export interface Variable {
  name: string;
  label: string;
  type: string;
  allValue?: string;
}

export interface Dashboard {
  title: string;
  panels: Panel[];
  templating: { list: Variable[] };
}

// What one picture shows.
export interface Picture {
  file: string; // without extension
  dashboard: Dashboard;
  variables: Record<string, string>; // without an entry: all
  from: number; // ms
  to: number; // ms
  rows: [number, number]; // of the grid, from and to
  width: number; // px
}
