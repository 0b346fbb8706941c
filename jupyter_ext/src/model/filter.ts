/**
 * The filter of the list: `state:running,suspended user:me tag:bert -name:old* group:default words`.
 * All terms must match; commas mean or; a leading - negates; a word without a key must be a part of the name.
 */
import { TaskRow } from './types';
import { status } from './format';

export type Matcher = (task: TaskRow) => boolean;

const KEYS = ['state', 'status', 'outcome', 'user', 'name', 'tag', 'group', 'type', 'id', 'after', 'starred'];

/** Returns a function that tests whether a task matches; `me` is the user for `user:me`. */
export function matcher(text: string, me: string): Matcher {
  const terms = (text.match(/-?(?:\w+:)?"[^"]*"|\S+/g) ?? []).map(term => parseTerm(term, me));
  return task => terms.every(term => term(task));
}

function parseTerm(term: string, me: string): Matcher {
  const negated = term.startsWith('-') && term.length > 1;
  const [, key, value] = /^-?(?:(\w+):)?(.*)$/s.exec(term) ?? [];
  const isKey = key && KEYS.includes(key.toLowerCase());
  const pattern = (isKey ? value : term.slice(negated ? 1 : 0)) ?? '';
  const alternatives = pattern.replace(/"/g, '').toLowerCase().split(',').filter(Boolean);
  const test = isKey ? matchField(key.toLowerCase(), alternatives, me) : matchNameOrId(alternatives);
  return negated ? task => !test(task) : test;
}

function matchNameOrId(alternatives: string[]): Matcher {
  return task => alternatives.every(w => task.name.toLowerCase().includes(w) || String(task.id) === w);
}

function matchField(key: string, alternatives: string[], me: string): Matcher {
  const tests = alternatives.map(alternative => matchPattern(key === 'user' && alternative === 'me' ? me.toLowerCase() : alternative));
  return task => fieldValues(key, task).some(value => tests.some(test => test(value.toLowerCase())));
}

function fieldValues(key: string, task: TaskRow): string[] {
  switch (key) {
    case 'state':
    case 'status':
      return [task.state, status(task)];
    case 'outcome':
      return [task.outcome ?? ''];
    case 'tag':
      return task.tags ?? [];
    case 'id':
      return [String(task.id)];
    case 'after':
      return (task.awaited ?? []).map(String);
    case 'starred':
      return [String(task.starred ?? false)];
    default:
      return [String(task[key as 'user' | 'name' | 'group' | 'type'] ?? '')];
  }
}

function matchPattern(pattern: string): (value: string) => boolean {
  if (!pattern.includes('*')) {
    return value => value === pattern;
  }
  const parts = pattern.split('*').map(part => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'));
  const expression = new RegExp(`^${parts.join('.*')}$`, 's');
  return value => expression.test(value);
}
