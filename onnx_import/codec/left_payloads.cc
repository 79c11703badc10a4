#include "onnx_import/codec/left_payloads.h"

#include <optional>
#include <string>

#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"

namespace weft {
namespace {

// Field numbers of wire.proto, from the model down to raw data.
constexpr int kGraphOfModel = 7;
constexpr int kNodeOfGraph = 1;
constexpr int kInitializerOfGraph = 5;
constexpr int kAttributeOfNode = 5;
constexpr int kTensorOfAttribute = 5;
constexpr int kRawDataOfTensor = 9;

enum class Level { kModel, kGraph, kNode, kAttribute, kTensor };

// The level of the message that a field holds and that payloads are looked for in.
std::optional<Level> Inner(Level level, const WireField& field) {
  if (field.type != WireType::kBytes || field.payload.size() < kLeftPayloadBytes) return {};
  switch (level) {
    case Level::kModel:
      if (field.number == kGraphOfModel) return Level::kGraph;
      break;
    case Level::kGraph:
      if (field.number == kInitializerOfGraph) return Level::kTensor;
      if (field.number == kNodeOfGraph) return Level::kNode;
      break;
    case Level::kNode:
      if (field.number == kAttributeOfNode) return Level::kAttribute;
      break;
    case Level::kAttribute:
      if (field.number == kTensorOfAttribute) return Level::kTensor;
      break;
    case Level::kTensor:
      break;
  }
  return {};
}

void AddPlace(const WireField& payload, const char* file, ByteRope& out) {
  std::string place;
  AppendVarintField(onnx::TensorProto::kFileOffsetFieldNumber,
                    static_cast<uint64_t>(payload.payload.data() - file), place);
  AppendVarintField(onnx::TensorProto::kFileBytesFieldNumber, payload.payload.size(), place);
  out.AppendCopy(place);
}

// `file`: where the whole model begins. At most five levels deep.
ByteRope Leave(Level level, std::string_view bytes, const char* file) {
  ByteRope out;
  size_t kept = 0;  // what is before this is in `out`
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) break;  // checked by ScanWire
    const bool is_raw_data = level == Level::kTensor && field->number == kRawDataOfTensor &&
                             field->type == WireType::kBytes &&
                             field->payload.size() >= kLeftPayloadBytes;
    const std::optional<Level> inner = Inner(level, *field);
    if (!is_raw_data && !inner.has_value()) continue;
    const size_t begin = reader.position() - field->whole.size();
    out.AppendView(bytes.substr(kept, begin - kept));
    kept = reader.position();
    if (is_raw_data) {
      AddPlace(*field, file, out);
    } else {
      out.AppendField(field->number, Leave(*inner, field->payload, file));
    }
  }
  out.AppendView(bytes.substr(kept));
  return out;
}

}  // namespace

ByteRope LeavePayloads(std::string_view bytes) { return Leave(Level::kModel, bytes, bytes.data()); }

}  // namespace weft
