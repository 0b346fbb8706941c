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
  /** The tasks to wait for: 12, or 12:ended. */
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

/** Returns the form as a part of a task file; null removes a value of the file, such as a deleted variable. */
export function toTaskFile(form: Form, initial: Form = EMPTY): Table {
  const removed = Object.fromEntries(Object.keys(parsePairs(initial.variables)).map(name => [name, null]));
  return {
    name: form.name,
    priority: form.priority,
    resource: withoutEmpty({ node_count: form.nodes, group: form.group, image: form.image }),
    spec: withoutEmpty({ environments: { ...removed, ...parsePairs(form.variables) } }),
    options: withoutEmpty({
      py_venv: form.environment,
      tags: tokens(form.tags),
      time_limit: form.timeLimit.trim(),
      max_retries: form.maxRetries,
      after: tokens(form.after).map(parseDependency)
    })
  };
}

/** Returns the form with the values of a task file; a missing value stays as it was. */
export function toForm(file: Table, before: Form): Form {
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
    variables: pairLines(file.spec?.environments ?? {}),
    tags: (options.tags ?? []).join(' '),
    timeLimit: options.time_limit ? String(options.time_limit) : '',
    maxRetries: options.max_retries ?? 0,
    after: (options.after ?? []).map((after: Table) => (after.outcome ? `${after.task}:${after.outcome}` : after.task)).join(' ')
  };
}

function tokens(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** Parses 12, #12 or 12:ended; the server rejects anything else. */
function parseDependency(text: string): Table {
  const [task = '', outcome] = text.replace(/^#/, '').split(':');
  return { task: /^\d+$/.test(task) ? Number(task) : task, ...(outcome === undefined ? {} : { outcome }) };
}

/** Returns true if all values are equal. */
export function areEqual(a: Form, b: Form): boolean {
  return (Object.keys(a) as Array<keyof Form>).every(key => a[key] === b[key]);
}

/** Parses lines NAME=VALUE; a line without = is a name with an empty value, # begins a comment. */
export function parsePairs(text: string): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const line of text.split('\n')) {
    const trimmed = line.trim();
    if (trimmed && !trimmed.startsWith('#')) {
      const at = trimmed.indexOf('=');
      const name = (at < 0 ? trimmed : trimmed.slice(0, at)).trim();
      pairs[name] = at < 0 ? '' : trimmed.slice(at + 1).trim();
    }
  }
  return pairs;
}

/** Returns lines NAME=VALUE. */
export function pairLines(values: Record<string, string>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
}

function withoutEmpty(table: Table): Table {
  return Object.fromEntries(Object.entries(table).map(([key, value]) => [key, isEmpty(value) ? null : value]));
}

function isEmpty(value: unknown): boolean {
  return value === '' || value === 0 || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);
}
