#include "onnx_import/codec/wire_scan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"
#include "onnx_import/codec/wire_reader.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Field numbers of ONNX are small; anything above is unknown to it.
constexpr int kFieldNumbers = 32;
// A std::string and its heap block, at least.
constexpr size_t kStringMemory = 48;

struct MessageTable;

struct FieldEntry {
  const FieldDescriptor* field = nullptr;  // null: unknown
  const MessageTable* message = nullptr;   // the type of a message field
  WireType wire_type = WireType::kVarint;  // of one element
};

struct MessageTable {
  std::string name;
  size_t memory = 0;  // of one decoded, empty message
  bool is_node = false;
  FieldEntry fields[kFieldNumbers];
  std::vector<int> own_fields;  // those of ours, which no file has
};

WireType WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return WireType::kFixed32;
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return WireType::kFixed64;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return WireType::kBytes;
    default:
      return WireType::kVarint;
  }
}

// The tables of one message type and of all that it can contain. Immutable once made.
class MessageTables {
 public:
  explicit MessageTables(const Descriptor& root) : root_(&TableOf(root)) {}
  const MessageTable& root() const { return *root_; }

 private:
  const MessageTable& TableOf(const Descriptor& type) {
    std::unique_ptr<MessageTable>& slot = tables_[&type];
    if (slot != nullptr) return *slot;
    slot = std::make_unique<MessageTable>();
    MessageTable& table = *slot;
    table.name = type.name();
    table.is_node = table.name == "NodeProto";
    const google::protobuf::Message* prototype =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
    table.memory = prototype->SpaceUsedLong() + sizeof(void*);
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.number() >= kFieldNumbers) {
        table.own_fields.push_back(field.number());
        continue;
      }
      FieldEntry& entry = table.fields[field.number()];
      entry.field = &field;
      entry.wire_type = WireTypeOf(field);
      if (field.message_type() != nullptr) entry.message = &TableOf(*field.message_type());
    }
    return table;
  }

  std::map<const Descriptor*, std::unique_ptr<MessageTable>> tables_;
  const MessageTable* root_;
};

class WireScanner {
 public:
  WireScanner(std::string_view bytes, const MessageTable& root, const WireLimits& limits)
      : bytes_(bytes), limits_(limits) {
    stack_.push_back(Frame{&root, WireReader(bytes), 0, 0});
  }

  absl::Status Run() {
    while (!stack_.empty()) {
      if (stack_.back().reader.AtEnd()) {
        stack_.pop_back();
        continue;
      }
      WEFT_RETURN_IF_ERROR(ScanField());
    }
    return absl::OkStatus();
  }

 private:
  struct Frame {
    const MessageTable* table;
    WireReader reader;
    size_t begin;   // offset of the message in the whole
    uint32_t seen;  // singular message fields, by number
  };

  absl::Status ScanField() {
    Frame& frame = stack_.back();
    const std::optional<WireField> field = frame.reader.Next();
    if (!field) return Error(frame, frame.reader.error());
    const FieldEntry* entry =
        field->number < kFieldNumbers ? &frame.table->fields[field->number] : nullptr;
    if (entry == nullptr || entry->field == nullptr) {
      const std::vector<int>& own = frame.table->own_fields;
      if (std::find(own.begin(), own.end(), field->number) != own.end()) {
        return Error(frame, absl::StrCat("field ", field->number, " is no field of ONNX"));
      }
      return Charge(field->whole.size() + kStringMemory);
    }
    WEFT_RETURN_IF_ERROR(CheckWireType(frame, *entry, *field));
    if (entry->message != nullptr) return Enter(*entry, *field);
    if (entry->wire_type == WireType::kBytes) return Charge(field->payload.size() + kStringMemory);
    return ChargeNumbers(frame, *entry, *field);
  }

  absl::Status CheckWireType(const Frame& frame, const FieldEntry& entry, const WireField& field) {
    const bool packed = entry.field->is_packable() && field.type == WireType::kBytes;
    if (field.type == entry.wire_type || packed) return absl::OkStatus();
    return Error(frame, absl::StrCat("field ", NameOf(frame, entry), " has wire type ",
                                     static_cast<int>(field.type), ", expected ",
                                     static_cast<int>(entry.wire_type)));
  }

  // Repeated numbers, packed or one by one. Fixed-size ones take what they take in the file.
  absl::Status ChargeNumbers(const Frame& frame, const FieldEntry& entry, const WireField& field) {
    if (field.type != WireType::kBytes) return Charge(8);
    const size_t size = entry.wire_type == WireType::kFixed32   ? 4
                        : entry.wire_type == WireType::kFixed64 ? 8
                                                                : 1;
    if (field.payload.size() % size != 0) {
      return Error(frame,
                   absl::StrCat("field ", NameOf(frame, entry), " has ", field.payload.size(),
                                " bytes, expected a multiple of ", size));
    }
    return Charge(size == 1 ? field.payload.size() * 8 : field.payload.size());
  }

  absl::Status Enter(const FieldEntry& entry, const WireField& field) {
    Frame& frame = stack_.back();
    if (!entry.field->is_repeated()) {
      const uint32_t bit = uint32_t{1} << field.number;
      if ((frame.seen & bit) != 0) {
        return Error(frame, absl::StrCat("field ", NameOf(frame, entry), " occurs twice"));
      }
      frame.seen |= bit;
    }
    WEFT_RETURN_IF_ERROR(Charge(entry.message->memory));
    if (entry.message->is_node && ++nodes_ > limits_.max_nodes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it has more than ", limits_.max_nodes,
                       " nodes, the most that are read; where you trust it, --max-nodes N reads "
                       "more, each in some 2.5 KiB of memory"));
    }
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return Error(frame, absl::StrCat("messages are nested deeper than ", limits_.max_depth,
                                       " levels (at most 30 subgraphs may lie in one another)"));
    }
    const size_t begin = static_cast<size_t>(field.payload.data() - bytes_.data());
    stack_.push_back(Frame{entry.message, WireReader(field.payload), begin, 0});
    return absl::OkStatus();
  }

  absl::Status Charge(size_t memory) {
    memory_ += memory;
    const size_t allowed = std::max(limits_.min_memory, bytes_.size() * limits_.max_growth);
    if (memory_ <= allowed) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "its ", bytes_.size(), " bytes would take more than ", allowed,
        " bytes in memory, because they hold mostly empty messages; no exporter writes "
        "such a file"));
  }

  static std::string NameOf(const Frame& frame, const FieldEntry& entry) {
    return absl::StrCat(frame.table->name, ".", entry.field->name());
  }

  absl::Status Error(const Frame& frame, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a whole ONNX file: at byte ", frame.begin + frame.reader.position(), ", in a ",
        frame.table->name, ": ", what,
        "; the file is truncated, damaged or of another kind, copy or export it again"));
  }

  std::string_view bytes_;
  WireLimits limits_;
  std::vector<Frame> stack_;
  size_t memory_ = 0;
  size_t nodes_ = 0;
};

}  // namespace

absl::Status ScanWire(std::string_view bytes, const google::protobuf::Message& prototype,
                      const WireLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it has ", bytes.size(), " bytes, more than the ", limits.max_bytes,
        " that an ONNX file can have; export the weights as external data (a file beside it)"));
  }
  const MessageTables tables(*prototype.GetDescriptor());
  return WireScanner(bytes, tables.root(), limits).Run();
}

absl::Status ParseRope(const ByteRope& bytes, const WireLimits& limits,
                       google::protobuf::Message& message) {
  RopeInputStream stream(bytes);
  google::protobuf::io::CodedInputStream input(&stream);
  input.SetRecursionLimit(limits.max_depth + 2);
  input.SetTotalBytesLimit(static_cast<int>(limits.max_bytes));
  if (message.MergeFromCodedStream(&input) && input.ConsumedEntireMessage()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "not a whole ONNX file: a packed list of numbers ends inside a number; the file is damaged, "
      "copy or export it again");
}

absl::Status ParseWire(std::string_view bytes, const WireLimits& limits,
                       google::protobuf::Message& message) {
  WEFT_RETURN_IF_ERROR(ScanWire(bytes, message, limits));
  ByteRope whole;
  whole.AppendView(bytes);
  return ParseRope(whole, limits, message);
}

}  // namespace weft
