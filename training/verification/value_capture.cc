#include "training/verification/value_capture.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"

namespace weft {
namespace {

class Capturer {
 public:
  explicit Capturer(Partition& partition) : partition_(partition) {}

  std::vector<ValueCapture> Run() {
    const std::vector<Accumulation> own = partition_.accumulations;
    CaptureBegin();
    for (const MicroBatch& micro_batch : partition_.micro_batches) CaptureMicro(micro_batch);
    for (auto& [name, accumulation] : terms_) {
      partition_.accumulations.push_back(std::move(accumulation));
    }
    for (const Accumulation& accumulation : own) CaptureSums(accumulation);
    CaptureEnd();
    return std::move(captures_);
  }

 private:
  static bool IsCaptured(const Graph& graph, ValueId id) {
    return id.valid() && IsFloatingPoint(graph.value(id).type.dtype);
  }
  static void Keep(Graph& graph, ValueId id) {
    const std::vector<ValueId>& outputs = graph.outputs();
    if (std::find(outputs.begin(), outputs.end(), id) == outputs.end()) graph.AddOutput(id);
  }
  static ValueCapture CaptureOf(ValueCapture::Kind kind, const Graph& graph, const Node& node,
                                ValueId output) {
    ValueCapture capture;
    capture.kind = kind;
    capture.value = graph.value(output).name;
    capture.node = node.name;
    capture.op = node.op;
    capture.received = KindOf(node) == CommunicationKind::kReceive;
    return capture;
  }
  void Report(ValueCapture capture, ValueId end_value) {
    capture.report = partition_.end.value(end_value).name;
    Keep(partition_.end, end_value);
    std::vector<std::string>& reports = partition_.reports;
    if (std::find(reports.begin(), reports.end(), capture.report) == reports.end()) {
      reports.push_back(capture.report);
    }
    captures_.push_back(std::move(capture));
  }
  void CaptureBegin();
  void CaptureMicro(const MicroBatch& micro_batch);
  void CaptureSums(const Accumulation& accumulation);
  void CaptureEnd();

  Partition& partition_;
  std::map<std::string, Accumulation> terms_;  // by value
  std::vector<ValueCapture> captures_;
};

void Capturer::CaptureBegin() {
  for (const ValueId id : partition_.begin.outputs()) {
    const ValueDef& value = partition_.begin.value(id);
    if (value.source != ValueSource::kNode || !IsCaptured(partition_.begin, id)) continue;
    std::optional<ValueId> input = partition_.end.FindValue(value.name);
    if (!input.has_value()) {
      input = partition_.end.AddInput(value.name, value.type, InputRole::kStep);
    }
    Report(CaptureOf(ValueCapture::Kind::kBegin, partition_.begin,
                     partition_.begin.node(value.producer), id),
           *input);
  }
}

void Capturer::CaptureMicro(const MicroBatch& micro_batch) {
  Graph& graph = partition_.micro[micro_batch.graph];
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    for (const ValueId output : node.outputs) {
      if (!IsCaptured(graph, output)) continue;
      const ValueDef& value = graph.value(output);
      Keep(graph, output);
      const ValueId input =
          partition_.end.AddInput(absl::StrCat("micro_batch", micro_batch.index, "/", value.name),
                                  value.type, InputRole::kStep);
      Accumulation& term = terms_[value.name];
      term.micro_output = value.name;
      term.blocks.push_back(
          {partition_.end.value(input).name, micro_batch.index, micro_batch.index + 1});
      ValueCapture capture = CaptureOf(ValueCapture::Kind::kMicro, graph, node, output);
      capture.first = micro_batch.index;
      capture.last = micro_batch.index + 1;
      capture.samples = micro_batch.samples;
      Report(std::move(capture), input);
    }
  }
}

// A copy of the sum: a reduction over ranks may overwrite the sum itself.
void Capturer::CaptureSums(const Accumulation& accumulation) {
  for (const Accumulation::Block& block : accumulation.blocks) {
    const std::optional<ValueId> input = partition_.end.FindValue(block.end_input);
    const bool is_summed = input.has_value() && !partition_.micro_batches.empty();
    if (!is_summed || !IsCaptured(partition_.end, *input)) continue;
    const ValueId copy = partition_.end.AddInput(
        absl::StrCat("sum/", block.end_input), partition_.end.value(*input).type, InputRole::kStep);
    Accumulation copied = accumulation;
    copied.blocks = {{partition_.end.value(copy).name, block.first, block.last}};
    partition_.accumulations.push_back(std::move(copied));
    ValueCapture capture;
    capture.kind = ValueCapture::Kind::kSum;
    capture.value = accumulation.micro_output;
    capture.node = block.end_input;
    capture.op = "Accumulate";
    // Together the blocks sum all micro-batches of the rank, whatever they say.
    const std::vector<MicroBatch>& rows = partition_.micro_batches;
    capture.first = &block == &accumulation.blocks.front() ? rows.front().index : block.first;
    capture.last = &block == &accumulation.blocks.back() ? rows.back().index + 1 : block.last;
    Report(std::move(capture), copy);
  }
}

void Capturer::CaptureEnd() {
  for (const NodeId id : partition_.end.node_ids()) {
    const Node& node = partition_.end.node(id);
    for (const ValueId output : node.outputs) {
      if (!IsCaptured(partition_.end, output)) continue;
      Report(CaptureOf(ValueCapture::Kind::kStep, partition_.end, node, output), output);
    }
  }
}

}  // namespace

std::vector<ValueCapture> CaptureValues(Partition& partition) { return Capturer(partition).Run(); }

}  // namespace weft
