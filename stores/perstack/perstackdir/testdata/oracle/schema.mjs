// The shapes of what the folder holds, and how reading treats a value that has another:
// members that a shape does not name are left out, and a value that does not fit is an
// error. A parsed object has its members in the order of its shape.

// SchemaError says which value does not fit.
export class SchemaError extends Error {}

function misfit(path, want) {
  throw new SchemaError(`${path || "the value"} is not ${want}`);
}

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const any = (v, path) => (v === undefined ? misfit(path, "there") : v);
const string = (v, path) => (typeof v === "string" ? v : misfit(path, "a string"));
const number = (v, path) => (Number.isFinite(v) ? v : misfit(path, "a finite number"));
const boolean = (v, path) => (typeof v === "boolean" ? v : misfit(path, "true or false"));
const open = (v, path) => (isObject(v) ? v : misfit(path, "an object"));
const optional = (shape) => (v, path) => (v === undefined ? undefined : shape(v, path));
const standard = (shape, value) => (v, path) => (v === undefined ? value : shape(v, path));
const oneOf = (...values) => (v, path) => (values.includes(v) ? v : misfit(path, `one of ${values.join(", ")}`));
const length = (min, max) => (v, path) =>
  string(v, path).length >= min && v.length <= max ? v : misfit(path, `${min} to ${max} long`);

const list = (shape) => (v, path) => (Array.isArray(v) ? v.map((x, i) => shape(x, `${path}[${i}]`)) : misfit(path, "a list"));

const map = (shape) => (v, path) =>
  Object.fromEntries(Object.entries(open(v, path)).map(([key, x]) => [key, shape(x, `${path}.${key}`)]));

const object = (members) => (v, path) => {
  open(v, path);
  const own = (key) => (Object.hasOwn(v, key) ? v[key] : undefined);
  const all = Object.entries(members).map(([key, shape]) => [key, shape(own(key), path ? `${path}.${key}` : key)]);
  return Object.fromEntries(all.filter(([, x]) => x !== undefined));
};

// tagged is one of several objects, by their member type.
const tagged = (kinds) => (v, path) => {
  const kind = Object.hasOwn(open(v, path), "type") && Object.hasOwn(kinds, v.type) ? v.type : misfit(`${path}.type`, "known");
  return object({ type: string, id: string, ...kinds[kind] })(v, path);
};

const url = { url: string, mimeType: string };
const inline = { encodedData: string, mimeType: string };
const binary = { data: string, mimeType: string };
const text = { textPart: { text: string } };
const media = {
  imageUrlPart: url, imageInlinePart: inline, imageBinaryPart: binary,
  fileUrlPart: url, fileInlinePart: inline, fileBinaryPart: binary,
};
const toolResultPart = {
  toolCallId: string, toolName: string, contents: list(tagged({ ...text, ...media })), isError: optional(boolean),
};
const toolCallPart = { toolCallId: string, toolName: string, args: any };
const thinkingPart = { thinking: string, signature: optional(string) };
const part = tagged({ ...text, ...media, toolCallPart, toolResultPart, thinkingPart });

const holding = (kinds) => ({ contents: list(tagged(kinds)), cache: optional(boolean) });
const message = tagged({
  instructionMessage: holding(text),
  userMessage: holding({ ...text, ...media }),
  expertMessage: holding({ ...text, toolCallPart, thinkingPart }),
  toolMessage: holding({ toolResultPart }),
});

const usage = object({
  inputTokens: number, outputTokens: number, reasoningTokens: number, totalTokens: number, cachedInputTokens: number,
});
const toolCall = object({ id: length(1, 255), skillName: string, toolName: string, args: open });
const toolResult = object({ id: string, skillName: string, toolName: string, result: list(part) });
const expert = object({ key: string, name: string, version: string });

export const jobShape = object({
  id: string,
  status: oneOf("running", "completed", "stoppedByMaxSteps", "stoppedByInteractiveTool", "stoppedByError"),
  coordinatorExpertKey: string,
  totalSteps: number,
  maxSteps: optional(number),
  usage,
  startedAt: number,
  finishedAt: optional(number),
});

const runtime = optional(oneOf("local", "cursor", "claude-code", "gemini", "docker"));

export const checkpointShape = object({
  id: string,
  jobId: string,
  runId: string,
  status: oneOf("init", "proceeding", "completed", "stoppedByInteractiveTool", "stoppedByDelegate",
    "stoppedByExceededMaxSteps", "stoppedByError"),
  stepNumber: number,
  messages: list(message),
  expert,
  delegateTo: optional(list(object({ expert, toolCallId: string, toolName: string, query: string }))),
  delegatedBy: optional(object({ expert, toolCallId: string, toolName: string, checkpointId: string, runId: string })),
  usage,
  contextWindow: optional(number),
  contextWindowUsage: optional(number),
  pendingToolCalls: optional(list(toolCall)),
  partialToolResults: optional(list(toolResult)),
  metadata: optional((v, path) => (runtime(open(v, path).runtime, `${path}.runtime`), v)),
  error: optional(object({ name: string, message: string, statusCode: optional(number), isRetryable: boolean })),
  retryCount: optional(number),
});

const budget = (v, path) => (Number.isInteger(v) ? v : oneOf("none", "minimal", "low", "medium", "high")(v, path));

export const runSettingShape = object({
  model: string,
  providerConfig: open,
  jobId: string,
  runId: string,
  expertKey: string,
  input: object({
    text: optional(string),
    interactiveToolCallResult: optional(object({ toolCallId: string, toolName: string, skillName: string, text: string })),
  }),
  experts: map(object({
    key: string, name: string, version: string, description: optional(string), instruction: string, skills: open,
    delegates: list(string), tags: list(string), providerTools: optional(any), providerSkills: optional(any), providerToolOptions: optional(any),
  })),
  reasoningBudget: standard(budget, "low"),
  maxSteps: standard(number, 100),
  maxRetries: standard(number, 5),
  timeout: standard(number, 300000),
  startedAt: number,
  updatedAt: number,
  perstackApiBaseUrl: string,
  perstackApiKey: optional(string),
  perstackBaseSkillCommand: optional(list(string)),
  env: map(string),
  proxyUrl: optional(string),
  verbose: optional(boolean),
});
