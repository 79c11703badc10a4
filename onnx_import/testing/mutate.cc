#include "onnx_import/testing/mutate.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/exporter.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "onnx_import/tensor_proto.h"

namespace weft::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

size_t Below(std::mt19937& random, size_t n) { return n == 0 ? 0 : random() % n; }

void MutateBytesOnce(std::string& bytes, std::mt19937& random) {
  if (bytes.empty()) return;
  const size_t at = Below(random, bytes.size());
  const size_t length = Below(random, std::min<size_t>(bytes.size() - at, 64)) + 1;
  switch (Below(random, 6)) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes[at] ^= static_cast<char>(1 << Below(random, 8));
      break;
    case 2:
      bytes[at] = "\x00\x01\x7f\x80\xff\x0a"[Below(random, 6)];
      break;
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, length));
      break;
    default:
      bytes.insert(Below(random, bytes.size()), bytes.substr(at, length));
  }
}

// The message and everything in it.
void Collect(Message& message, std::vector<Message*>& all) {
  all.push_back(&message);
  std::vector<const FieldDescriptor*> fields;
  const Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      Collect(*reflection.MutableMessage(&message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      Collect(*reflection.MutableRepeatedMessage(&message, field, i), all);
    }
  }
}

int64_t ExtremeNumber(std::mt19937& random) {
  constexpr int64_t kNumbers[] = {-1,
                                  0,
                                  1,
                                  2,
                                  7,
                                  16,
                                  17,
                                  127,
                                  int64_t{1} << 20,
                                  (int64_t{1} << 31) - 1,
                                  int64_t{1} << 31,
                                  int64_t{1} << 40,
                                  std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min()};
  return kNumbers[Below(random, std::size(kNumbers))];
}

void SetSingular(Message& message, const FieldDescriptor* field, std::mt19937& random) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, field, ExtremeNumber(random));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, field, static_cast<int32_t>(Below(random, 40)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.SetFloat(&message, field, std::numeric_limits<float>::quiet_NaN());
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, field, static_cast<int>(Below(random, 16)));
    case FieldDescriptor::CPPTYPE_STRING: {
      constexpr const char* kTexts[] = {"", "x", "y", "\x1b[2J", "ai.onnx", "axes", "Relu"};
      return reflection.SetString(&message, field, kTexts[Below(random, std::size(kTexts))]);
    }
    default:
      return reflection.ClearField(&message, field);
  }
}

void MutateRepeated(Message& message, const FieldDescriptor* field, std::mt19937& random) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, field);
  const int at = static_cast<int>(Below(random, size));
  switch (Below(random, 4)) {
    case 0:
      return reflection.RemoveLast(&message, field);
    case 1:
      return reflection.SwapElements(&message, field, 0, at);
    case 2:
      if (field->message_type() != nullptr) {
        Message* copy = reflection.AddMessage(&message, field);
        copy->CopyFrom(reflection.GetRepeatedMessage(message, field, at));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection.AddInt64(&message, field, ExtremeNumber(random));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection.AddString(&message, field, "x");
      }
      return;
    default:
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection.SetRepeatedInt64(&message, field, at, ExtremeNumber(random));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection.SetRepeatedString(&message, field, at, Below(random, 2) == 0 ? "" : "x");
      }
  }
}

// What follows from an import that succeeded must succeed.
void Require(const absl::Status& status, const char* step) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s fails on a model that imports: %s\n", step, status.ToString().c_str());
  std::abort();
}

}  // namespace

std::string MutateBytes(std::string bytes, std::mt19937& random) {
  for (size_t i = Below(random, 4) + 1; i > 0; --i) MutateBytesOnce(bytes, random);
  return bytes;
}

void MutateFields(Message& message, std::mt19937& random) {
  for (size_t i = Below(random, 4) + 1; i > 0; --i) {
    std::vector<Message*> all;
    Collect(message, all);
    Message& target = *all[Below(random, all.size())];
    std::vector<const FieldDescriptor*> fields;
    target.GetReflection()->ListFields(target, &fields);
    if (fields.empty()) continue;
    const FieldDescriptor* field = fields[Below(random, fields.size())];
    if (field->is_repeated()) {
      MutateRepeated(target, field, random);
    } else {
      SetSingular(target, field, random);
    }
  }
}

namespace {

// Edits of a model that imports give models that import.
void ExerciseEdits(const ModelFile& file) {
  const bool only_rules = file.proto()->training_info_size() > 0;
  const std::vector<TieOptions> all = {{}, {.untie = {"all"}}, {.tie = {"auto"}}};
  for (const TieOptions& options : all) {
    const bool is_asked = !options.untie.empty() || !options.tie.empty();
    if (is_asked && only_rules) continue;
    const auto settled = SettleTies(file, options);
    if (absl::IsInvalidArgument(settled.status()) && !options.tie.empty()) continue;
    if (absl::IsResourceExhausted(settled.status())) continue;  // more copies than CopyBudget has
    Require(settled.status(), "SettleTies");
    Require(ImportModel(settled->file).status(), "ImportModel after SettleTies");
  }
  TrainingModeNodesOf(file);
  const auto inference = WriteForInference(file.bytes());
  if (CheckInferenceForm(file).ok() != inference.ok()) Require(inference.status(), "inference");
  if (!inference.ok()) return;
  const auto written = ModelFile::Parse(*inference, "inference.onnx");
  Require(written.status(), "ModelFile::Parse after WriteForInference");
  Require(ImportModel(*written).status(), "ImportModel after WriteForInference");
}

}  // namespace

bool ExerciseModel(std::string_view bytes) {
  for (const ValueKind kind : {ValueKind::kTensor, ValueKind::kSequence, ValueKind::kOptional}) {
    const auto value = ParseValue(bytes, kind);
    if (value.ok()) value->value.ToString();
  }
  const auto wire = GraphFromOnnx(bytes);
  if (wire.ok()) Require(GraphToOnnx(*wire).status(), "GraphToOnnx");
  const auto file = ModelFile::Parse(std::string(bytes), "mutated.onnx");
  if (!file.ok()) return false;
  auto model = ImportModel(*file);
  if (!model.ok()) return false;
  std::map<std::string, Tensor> trained;
  for (const ImportedParameter& parameter : model->parameters) {
    const Variable* variable = model->graph.FindVariable(parameter.name);
    if (variable != nullptr) trained[parameter.name] = variable->initial;
  }
  Require(ExportTrained(*model, trained).status(), "ExportTrained");
  ExerciseEdits(*file);
  Require(MarkTrainable(*model).status(), "MarkTrainable");
  model->graph.DebugString();
  const auto written = GraphToOnnx(model->graph);
  Require(written.status(), "GraphToOnnx");
  Require(GraphFromOnnx(*written).status(), "GraphFromOnnx");
  return true;
}

}  // namespace weft::testing
