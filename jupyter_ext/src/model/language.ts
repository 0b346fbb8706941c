/** Translates texts. English texts are keys; other languages are tables. */
import { fill } from './task_notifications';

export type Translate = (text: string, values?: Record<string, string | number>) => string;

/** Returns a function that translates texts by a table. */
export function translatorFor(table: Record<string, string>): Translate {
  return (text, values) => fill(table[text] ?? text, values ?? {});
}

/** Returns true for zh, zh_CN, zh-TW and so on. */
export function isChinese(language: string): boolean {
  return language.toLowerCase().startsWith('zh');
}
