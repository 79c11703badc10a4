#include "tools/reports/training_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/nccl/nccl.h"
#include "placement/completion/plan_completion.h"
#include "platform/byte_quantity.h"
#include "tools/console/console.h"
#include "tools/console/quantity.h"
#include "tools/reports/parameter_report.h"
#include "tools/reports/plan_report.h"

namespace weft {
namespace {

double ElementCount(const Graph& graph, const Variable& variable) {
  const auto shape = graph.value(variable.value).type.shape.ToConcrete();
  return shape.has_value() ? static_cast<double>(shape->num_elements()) : 0;
}

// What trains; for a model that trains by its training_info, what a step of that changes.
std::string TrainsText(const TrainingSetup& setup) {
  const bool own = setup.training.model_training_info;
  const Graph& graph = own ? setup.job.graph : setup.graph;
  int count = 0;
  double elements = 0;
  for (const Variable& variable : graph.variables()) {
    if (own ? !variable.update.valid() : !variable.trainable) continue;
    ++count;
    elements += ElementCount(graph, variable);
  }
  return absl::StrCat(count, own ? " tensors by its training_info, " : " parameters, ",
                      Quantity(elements), " numbers");
}

// ", kept in int4".
std::string QuantizationText(const TrainingSetup& setup) {
  const auto& base = setup.adapters.front().quantized;
  const Variable* const codes = base.has_value() ? setup.graph.FindVariable(base->codes) : nullptr;
  if (codes == nullptr) return "";
  return absl::StrCat(", kept in ",
                      std::string(DTypeName(setup.graph.value(codes->value).type.dtype)));
}

std::string UpdatesText(const std::vector<PreparedUpdate>& updates) {
  std::string text;
  for (const PreparedUpdate& update : updates) {
    absl::StrAppend(&text, "update ", update.name, ": ", update.steps,
                    update.steps == 1 ? " step" : " steps", " in turn, loss ",
                    Printable(update.loss), ", ", update.parameters,
                    update.parameters == 1 ? " parameter, " : " parameters, ", update.optimizer,
                    ", learning rate ", update.learning_rate, ", ", update.data->samples(),
                    " samples in batches of ", update.data->spec().batch, "\n");
  }
  return text;
}

std::string LossText(const TrainingSetup& setup) {
  const TrainingSpec& training = setup.training;
  if (training.model_training_info) return "";
  if (!setup.job.updates.empty()) return UpdatesText(setup.job.updates);
  return absl::StrCat("loss   ", Printable(training.loss.kind),
                      training.loss.by_name ? " (by the output's name), " : ", ",
                      training.optimizer.kind, ", learning rate ", training.optimizer.learning_rate,
                      ", ", std::string(PrecisionName(training.precision)), "\n");
}

nlohmann::ordered_json MemoryJson(const TrainingOutcome& outcome) {
  nlohmann::ordered_json memory = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < outcome.needed.size(); ++rank) {
    const WorkerMemory& worker = outcome.needed[rank];
    memory.push_back({{"rank", rank},
                      {"predicted_bytes", worker.requirement.total()},
                      {"variable_bytes", worker.requirement.variable_bytes},
                      {"arena_bytes", worker.requirement.arena_bytes},
                      {"limit_bytes", worker.limit.bytes},
                      {"peak_bytes", outcome.result.memory[rank].peak_bytes}});
    if (!worker.requirement.on_device) continue;
    memory.back()["device_predicted_bytes"] = worker.requirement.device_allocated();
    memory.back()["device_nccl_bytes"] = worker.requirement.nccl_bytes;
    memory.back()["device_peak_bytes"] = outcome.result.memory[rank].device_peak_bytes;
  }
  return memory;
}

nlohmann::ordered_json SentJson(const std::vector<RankTraffic>& traffic) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankTraffic& rank : traffic) {
    ranks.push_back({{"rank", rank.rank.value},
                     {"steps", rank.steps},
                     {"bytes", rank.measured_bytes},
                     {"predicted_bytes", rank.predicted_bytes},
                     {"header_bytes", rank.header_bytes}});
  }
  return ranks;
}

// "loss 0.25", or "loss critic 0.5, generator 0.7".
std::string LastLossText(const TrainResult& result) {
  if (result.last_losses.empty()) return absl::StrFormat("loss %.6g", result.last_loss);
  std::string text = "loss";
  for (const auto& [update, loss] : result.last_losses) {
    absl::StrAppendFormat(&text, "%s %s %.6g", text == "loss" ? "" : ",", update, loss);
  }
  return text;
}

std::string ScaleText(const TrainResult& result) {
  if (!(result.loss_scale > 0)) return "";
  return absl::StrFormat("loss scale %.6g; %d of %d steps skipped, their gradients overflowed\n",
                         result.loss_scale, result.skipped_steps, result.steps);
}

// "samples" is null where it is not known.
// What differed between replicas; "" where nothing did.
std::string ReplicasText(const ReplicaCheckSummary& replicas) {
  if (replicas.divergences.empty()) return "";
  std::string text = absl::StrCat("replicas differed ", replicas.divergences.size(), " times:");
  for (const Divergence& divergence : replicas.divergences) {
    absl::StrAppend(&text, " after step ", divergence.step, " (", divergence.action,
                    divergence.fault.empty() ? "" : ", a ", divergence.fault,
                    divergence.fault.empty() ? "" : " fault", ")");
  }
  return absl::StrCat(text, "\n");
}

nlohmann::ordered_json ReplicasJson(const TrainingOutcome& outcome) {
  const ReplicaCheckSummary& replicas = outcome.replicas;
  auto found = nlohmann::ordered_json::array();
  for (const Divergence& divergence : replicas.divergences) {
    found.push_back({{"step", divergence.step},
                     {"equal_after_step", divergence.since},
                     {"workers", divergence.workers},
                     {"variables", divergence.variables},
                     {"action", divergence.action},
                     {"fault", divergence.fault}});
  }
  const double part = outcome.seconds > 0 ? replicas.seconds / outcome.seconds : 0;
  return {{"variables", replicas.variables},
          {"checks", replicas.checks},
          {"seconds", replicas.seconds},
          {"part_of_time", part},
          {"equal_after_step", replicas.last_equal},
          {"divergences", std::move(found)}};
}

nlohmann::ordered_json LossesJson(const std::vector<RecoveryRecord>& losses) {
  auto rows = nlohmann::ordered_json::array();
  for (const RecoveryRecord& loss : losses) {
    rows.push_back({{"lost", loss.lost},
                    {"in_their_places", loss.come},
                    {"workers_before", loss.before},
                    {"workers", loss.after},
                    {"seconds", loss.seconds},
                    {"settle_seconds", loss.settle_seconds},
                    {"wait_seconds", loss.times.wait},
                    {"prepared", loss.times.prepared},
                    {"plan_seconds", loss.times.plan},
                    {"join_seconds", loss.times.join},
                    {"program_seconds", loss.times.programs},
                    {"state_seconds", loss.times.state}});
  }
  return rows;
}

nlohmann::ordered_json NoiseJson(const NoiseAverage& noise) {
  nlohmann::ordered_json json = {{"measurements", noise.count()},
                                 {"samples", nullptr},
                                 {"gradient_variance", noise.mean().variance},
                                 {"gradient_square", noise.mean().square}};
  if (noise.scale().has_value()) json["samples"] = *noise.scale();
  return json;
}

std::string SentText(const std::vector<RankTraffic>& traffic) {
  std::string text;
  for (const RankTraffic& rank : traffic) {
    const double steps = static_cast<double>(std::max<int64_t>(rank.steps, 1));
    absl::StrAppendFormat(&text,
                          "rank %d sent %.10g bytes per step, predicted %.10g; headers %.10g\n",
                          rank.rank.value, static_cast<double>(rank.measured_bytes) / steps,
                          static_cast<double>(rank.predicted_bytes) / steps,
                          static_cast<double>(rank.header_bytes) / steps);
  }
  return text;
}

// How many go by NCCL, and why others go through the host ("": there are none).
nlohmann::ordered_json CardUseJson(const CardUse& use) {
  const auto way = [](int count, const std::string& refusal) {
    nlohmann::ordered_json entry = {{"way", count > 0         ? "nccl"
                                            : refusal.empty() ? "none"
                                                              : "host"}};
    if (!refusal.empty()) entry["host_because"] = refusal;
    return entry;
  };
  nlohmann::ordered_json json = {{"collectives", way(use.ranks, use.refusal)},
                                 {"sends", way(use.pairs, use.send_refusal)}};
  if (use.ranks > 0) json["collectives"]["gpus"] = use.ranks;
  if (use.pairs > 0) json["sends"]["pairs"] = use.pairs;
  if (use.nccl_version > 0) json["nccl_version"] = NcclVersionText(use.nccl_version);
  return json;
}

}  // namespace

std::string TrainingSetupText(const TrainingSetup& setup) {
  const DataSet& data = *setup.job.data;
  const Plan& plan = setup.job.plan;
  std::string text = absl::StrCat("train  ", Printable(setup.model), ": ", TrainsText(setup));
  if (!setup.adapters.empty()) {
    absl::StrAppend(&text, ", with adapters of ", setup.adapters.size(), " weights",
                    QuantizationText(setup));
  }
  if (setup.decisions != nullptr && !setup.decisions->empty()) {
    absl::StrAppend(&text, "\n", Printable(ParameterSummary(*setup.decisions)));
  }
  absl::StrAppend(&text, "\ndata   ", data.samples(), " samples, ", data.steps_per_epoch(),
                  " steps of ", data.spec().batch, " per epoch, ",
                  setup.shuffled ? "shuffled" : "in the order of the files", "\n", LossText(setup),
                  "plan   ", plan.mesh.ToString(), ", ", plan.micro_batches, " micro-batches, ",
                  ThreadsText(plan),
                  plan.strict ? ", strict"
                  : plan.tf32 ? ", TF32 on GPUs"
                              : "",
                  "\n", Printable(ReplicationText(plan, setup.job.programs.front().partitions)));
  for (const std::string& note : setup.job.notes) {
    absl::StrAppend(&text, "note   ", Printable(note), "\n");
  }
  return text;
}

std::string LossByNameText(const LossSpec& loss) {
  if (!loss.by_name) return "";
  return absl::StrCat("the loss is the model's output '", loss.kind.substr(loss.kind.find(':') + 1),
                      "', by its name");
}

std::string TrainingOutcomeText(const TrainingOutcome& outcome) {
  const TrainResult& result = outcome.result;
  std::string text;
  if (result.steps == outcome.first_step) {
    text = absl::StrCat("no step was left to train after step ", result.steps);
  } else {
    text = absl::StrCat(LastLossText(result), " after ", result.steps, " steps in ",
                        DurationText(outcome.seconds));
  }
  if (outcome.samples_per_second > 0) {
    absl::StrAppendFormat(&text, ", %.0f samples/s", outcome.samples_per_second);
  }
  absl::StrAppend(&text, "\n", ScaleText(result), SentText(outcome.traffic));
  if (outcome.noise != nullptr) {
    absl::StrAppend(&text, NoiseText(*outcome.noise, outcome.batch), "\n");
  }
  absl::StrAppend(&text, ReplicasText(outcome.replicas));
  if (!result.end.empty()) absl::StrAppend(&text, "ended early, ", Printable(result.end), "\n");
  return text;
}

std::string TrainingFilesText(const TrainingOutcome& outcome) {
  std::string text;
  if (!outcome.model.empty()) absl::StrAppend(&text, "model ", Printable(outcome.model), "\n");
  if (!outcome.averages.empty()) {
    absl::StrAppend(&text, "averages ", Printable(outcome.averages), "\n");
  }
  return text;
}

nlohmann::ordered_json TrainingOutcomeJson(const TrainingOutcome& outcome) {
  const TrainResult& result = outcome.result;
  nlohmann::ordered_json report = {{"steps", result.steps},
                                   {"last_loss", result.last_loss},
                                   {"seconds", outcome.seconds},
                                   {"samples_per_second", outcome.samples_per_second},
                                   {"input_stall", outcome.input_stall},
                                   {"memory", MemoryJson(outcome)},
                                   {"model", outcome.model},
                                   {"ema_model", outcome.averages},
                                   {"metrics", outcome.metrics},
                                   {"sent", SentJson(outcome.traffic)}};
  if (!result.last_losses.empty()) report["last_losses"] = result.last_losses;
  if (!result.end.empty()) report["ended"] = result.end;
  if (result.stopped) report["stopped"] = true;
  if (!outcome.shares.empty()) report["shares"] = outcome.shares;
  if (!outcome.notes.empty()) report["notes"] = outcome.notes;
  if (!DescribeCardUse(outcome.cards).empty()) report["between_gpus"] = CardUseJson(outcome.cards);
  if (outcome.replicas.checks > 0) report["replicas"] = ReplicasJson(outcome);
  if (!outcome.losses.empty()) report["losses"] = LossesJson(outcome.losses);
  if (outcome.noise != nullptr) report["noise_scale"] = NoiseJson(*outcome.noise);
  if (result.loss_scale > 0) {
    report["loss_scale"] = result.loss_scale;
    report["skipped_steps"] = result.skipped_steps;
  }
  return report;
}

std::string MemoryPeaksText(const TrainingOutcome& outcome) {
  std::string text;
  for (size_t rank = 0; rank < outcome.needed.size(); ++rank) {
    const int64_t need = outcome.needed[rank].requirement.total();
    const int64_t peak = outcome.result.memory[rank].peak_bytes;
    absl::StrAppendFormat(
        &text, "memory worker:%d peak %s, %.0f %% of the %s predicted\n", rank, ByteQuantity(peak),
        100 * static_cast<double>(peak) / static_cast<double>(need), ByteQuantity(need));
    const int64_t on_device = outcome.needed[rank].requirement.device_allocated();
    if (on_device == 0) continue;
    const int64_t device_peak = outcome.result.memory[rank].device_peak_bytes;
    absl::StrAppendFormat(&text,
                          "memory worker:%d peak %s on its device, %.0f %% of the %s predicted\n",
                          rank, ByteQuantity(device_peak),
                          100 * static_cast<double>(device_peak) / static_cast<double>(on_device),
                          ByteQuantity(on_device));
  }
  return text;
}

}  // namespace weft
