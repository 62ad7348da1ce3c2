// Protocol buffers as plain objects, as ../../node/cluster.js wants them, driven by a descriptor set that protoc has written.

const VARINTS = {
  3: "int64",
  4: "uint64",
  5: "int32",
  8: "bool",
  13: "uint32",
  14: "enum",
};
const [STRING, MESSAGE, BYTES] = [9, 11, 12];

const field = (name, number, type, more = {}) => ({
  name,
  number,
  type,
  ...more,
});
const many = (name, number, type, typeName) =>
  field(name, number, type, { typeName, repeated: true });
const asMessage = (fields) => ({ fields });

// What is needed of descriptor.proto in order to read the rest.
const DESCRIPTORS = new Map(
  Object.entries({
    FileDescriptorSet: [many("file", 1, MESSAGE, "FileDescriptorProto")],
    FileDescriptorProto: [
      field("package", 2, STRING),
      many("messageType", 4, MESSAGE, "DescriptorProto"),
      many("enumType", 5, MESSAGE, "EnumDescriptorProto"),
      many("service", 6, MESSAGE, "ServiceDescriptorProto"),
    ],
    DescriptorProto: [
      field("name", 1, STRING),
      many("field", 2, MESSAGE, "FieldDescriptorProto"),
      many("nestedType", 3, MESSAGE, "DescriptorProto"),
      many("enumType", 4, MESSAGE, "EnumDescriptorProto"),
      field("options", 7, MESSAGE, { typeName: "MessageOptions" }),
    ],
    MessageOptions: [field("mapEntry", 7, 8)],
    FieldDescriptorProto: [
      field("number", 3, 5),
      field("label", 4, 5),
      field("type", 5, 5),
      field("typeName", 6, STRING),
      field("oneofIndex", 9, 5, { optional: true }),
      field("jsonName", 10, STRING),
    ],
    EnumDescriptorProto: [
      field("name", 1, STRING),
      many("value", 2, MESSAGE, "EnumValueDescriptorProto"),
    ],
    EnumValueDescriptorProto: [field("name", 1, STRING), field("number", 2, 5)],
    ServiceDescriptorProto: [
      field("name", 1, STRING),
      many("method", 2, MESSAGE, "MethodDescriptorProto"),
    ],
    MethodDescriptorProto: [
      field("name", 1, STRING),
      field("inputType", 2, STRING),
      field("outputType", 3, STRING),
    ],
  }).map(([name, fields]) => [name, asMessage(fields)]),
);

/** The messages, enums and methods of a descriptor set. */
export class Codec {
  /** @param {Buffer} [descriptorSet] */
  constructor(descriptorSet) {
    this.types = new Map(DESCRIPTORS);
    this.methods = new Map();
    if (!descriptorSet) return;
    const { file } = this.decode("FileDescriptorSet", descriptorSet);
    for (const each of file) this.#addFile(each);
  }

  #addFile(file) {
    this.#addTypes(`.${file.package}`, file.messageType, file.enumType);
    for (const service of file.service) {
      for (const { name, inputType, outputType } of service.method) {
        this.methods.set(`/${file.package}.${service.name}/${name}`, {
          inputType,
          outputType,
        });
      }
    }
  }

  #addTypes(scope, messages, enums) {
    for (const { name, value } of enums)
      this.types.set(`${scope}.${name}`, { values: value });
    for (const message of messages) {
      const fields = message.field.map(
        ({ jsonName, number, type, typeName, label, oneofIndex }) =>
          field(jsonName, number, type, {
            typeName,
            repeated: label === 3,
            optional: oneofIndex !== undefined,
          }),
      );
      const name = `${scope}.${message.name}`;
      this.types.set(name, { fields, isMapEntry: message.options?.mapEntry });
      this.#addTypes(name, message.nestedType, message.enumType);
    }
  }

  /** @returns {Buffer} */
  encode(typeName, object) {
    const parts = [];
    for (const {
      name,
      number,
      type,
      typeName: inner,
      repeated,
    } of this.types.get(typeName).fields) {
      if (object[name] === undefined || object[name] === null) continue;
      for (const value of repeated ? object[name] : [object[name]]) {
        if (type in VARINTS) {
          parts.push(varint(number * 8), varint(this.#toInteger(value, inner)));
        } else {
          const bytes =
            type === MESSAGE ? this.encode(inner, value) : Buffer.from(value);
          parts.push(varint(number * 8 + 2), varint(bytes.length), bytes);
        }
      }
    }
    return Buffer.concat(parts);
  }

  #toInteger(value, enumName) {
    return enumName && typeof value === "string"
      ? this.types.get(enumName).values.find(({ name }) => name === value)
          .number
      : value;
  }

  decode(typeName, buffer) {
    const { fields } = this.types.get(typeName);
    const object = Object.fromEntries(
      fields
        .filter(({ optional }) => !optional)
        .map((field) => [field.name, this.#defaultOf(field)]),
    );
    const reader = new Reader(buffer);
    while (!reader.atEnd) {
      const key = Number(reader.varint());
      const field = fields.find(({ number }) => number === key >> 3);
      const value = reader.value(key & 7);
      if (!field) continue;
      const { name, type, typeName: inner, repeated } = field;
      if (!repeated) {
        object[name] = this.#toValue(field, value);
      } else if (type in VARINTS && Buffer.isBuffer(value)) {
        for (const packed = new Reader(value); !packed.atEnd; )
          object[name].push(this.#toValue(field, packed.varint()));
      } else if (this.types.get(inner)?.isMapEntry) {
        const entry = this.#toValue(field, value);
        object[name][entry.key] = entry.value;
      } else {
        object[name].push(this.#toValue(field, value));
      }
    }
    return object;
  }

  #defaultOf({ type, typeName, repeated }) {
    if (repeated) return this.types.get(typeName)?.isMapEntry ? {} : [];
    if (type === MESSAGE) return null;
    return this.#toValue(
      { type, typeName },
      type in VARINTS ? 0n : Buffer.alloc(0),
    );
  }

  #toValue({ type, typeName }, value) {
    switch (VARINTS[type] ?? type) {
      case "int64":
        return BigInt.asIntN(64, value).toString();
      case "uint64":
        return value.toString();
      case "bool":
        return value !== 0n;
      case "int32":
        return Number(BigInt.asIntN(32, value));
      case "uint32":
        return Number(value);
      case "enum": {
        const number = Number(BigInt.asIntN(32, value));
        return (
          this.types.get(typeName).values.find((it) => it.number === number)
            ?.name ?? number
        );
      }
      case STRING:
        return value.toString();
      case BYTES:
        return value;
      case MESSAGE:
        return this.decode(typeName, value);
      default:
        return undefined; // no client needs such a field
    }
  }
}

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}

class Reader {
  #position = 0;

  constructor(buffer) {
    this.buffer = buffer;
  }

  get atEnd() {
    return this.#position >= this.buffer.length;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.buffer.readUInt8(this.#position++);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }

  bytes(length) {
    const start = this.#position;
    this.#position += length;
    if (this.#position > this.buffer.length)
      throw new RangeError("a message is cut");
    return this.buffer.subarray(start, this.#position);
  }

  /** A varint as a BigInt, anything else as bytes. */
  value(wireType) {
    switch (wireType) {
      case 0:
        return this.varint();
      case 1:
        return this.bytes(8);
      case 2:
        return this.bytes(Number(this.varint()));
      case 5:
        return this.bytes(4);
      default:
        throw new RangeError(`wire type ${wireType}`);
    }
  }
}
