/** Values of the submit form, and their conversion to a task file. */

export interface Form {
  name: string;
  nodes: number;
  group: string;
  priority: number;
  environment: string;
  image: string;
  parameters: string;
  variables: string;
  tags: string;
  timeLimit: string;
  maxRetries: number;
  /** Tasks that go first: 12, or 12:ended. */
  after: string;
}

export const EMPTY: Form = {
  name: '',
  nodes: 1,
  group: 'default',
  priority: -1,
  environment: '',
  image: '',
  parameters: '',
  variables: '',
  tags: '',
  timeLimit: '',
  maxRetries: 0,
  after: ''
};

type Table = Record<string, any>;

/** The form as a part of a task file; null removes a value of the file, such as a deleted variable. */
export function asFile(form: Form, begun: Form = EMPTY): Table {
  const removed = Object.fromEntries(Object.keys(pairs(begun.variables)).map(name => [name, null]));
  return {
    name: form.name,
    priority: form.priority,
    resource: withoutEmpty({ node_count: form.nodes, group: form.group, image: form.image }),
    spec: withoutEmpty({ environments: { ...removed, ...pairs(form.variables) } }),
    options: withoutEmpty({
      py_venv: form.environment,
      tags: tokens(form.tags),
      time_limit: form.timeLimit.trim(),
      max_retries: form.maxRetries,
      after: tokens(form.after).map(first)
    })
  };
}

/** The form that a task file fills; what is missing keeps its value. */
export function asForm(file: Table, before: Form): Form {
  const resource: Table = file.resource ?? {};
  const options: Table = file.options ?? {};
  return {
    ...before,
    name: file.name ?? before.name,
    nodes: resource.node_count ?? before.nodes,
    group: resource.group || before.group,
    priority: file.priority ?? before.priority,
    environment: options.py_venv ?? '',
    image: resource.image ?? '',
    variables: lines(file.spec?.environments ?? {}),
    tags: (options.tags ?? []).join(' '),
    timeLimit: options.time_limit ? String(options.time_limit) : '',
    maxRetries: options.max_retries ?? 0,
    after: (options.after ?? []).map((one: Table) => (one.outcome ? `${one.task}:${one.outcome}` : one.task)).join(' ')
  };
}

function tokens(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** Parses 12, #12 or 12:ended; the server rejects anything else. */
function first(text: string): Table {
  const [task = '', outcome] = text.replace(/^#/, '').split(':');
  return { task: /^\d+$/.test(task) ? Number(task) : task, ...(outcome === undefined ? {} : { outcome }) };
}

/** True when nothing differs. */
export function same(a: Form, b: Form): boolean {
  return (Object.keys(a) as Array<keyof Form>).every(key => a[key] === b[key]);
}

/** Lines NAME=VALUE as an object; a line without = is a name with an empty value, # begins a comment. */
export function pairs(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of text.split('\n')) {
    const trimmed = line.trim();
    if (trimmed && !trimmed.startsWith('#')) {
      const at = trimmed.indexOf('=');
      const name = (at < 0 ? trimmed : trimmed.slice(0, at)).trim();
      found[name] = at < 0 ? '' : trimmed.slice(at + 1).trim();
    }
  }
  return found;
}

/** The other way round. */
export function lines(values: Record<string, string>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
}

function withoutEmpty(table: Table): Table {
  return Object.fromEntries(Object.entries(table).map(([key, value]) => [key, empty(value) ? null : value]));
}

function empty(value: unknown): boolean {
  return value === '' || value === 0 || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);
}
