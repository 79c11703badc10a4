#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/policy/file_verifier.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "placement/files/plan_file.h"
#include "platform/byte_quantity.h"
#include "platform/checksum.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tools/commands/command.h"
#include "tools/commands/command_json.h"
#include "tools/flags/options.h"
#include "tools/flags/tie_flags.h"
#include "tools/jobs/trained_model.h"
#include "tools/signing/ed25519_key.h"
#include "tools/signing/signed_set.h"
#include "training/adapters/adapter_options.h"
#include "training/adapters/quantized_bases.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/checkpoint_store.h"
#include "training/quantization/quantization.h"

namespace weft {
namespace {

bool IsCheckpoint(const std::string& path) {
  return RealFileSystem().Exists(absl::StrCat(path, "/", kCheckpointIndexName));
}

// "[128,784] float32".
std::string TensorTypeText(const CheckpointTensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype)), tensor.shape.ToString());
}

// How far two tensors are apart; infinity where a number has no counterpart.
struct Distance {
  double absolute = 0;
  double relative = 0;  // |a - b| / max(|a|, |b|)
};

absl::StatusOr<Distance> DistanceOf(const Tensor& a, const Tensor& b) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> left, ToDoubles(a));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> right, ToDoubles(b));
  Distance distance;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    const double gap = std::abs(left[i] - right[i]);
    const double size = std::max(std::abs(left[i]), std::abs(right[i]));
    const bool finite = std::isfinite(gap);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    distance.absolute = std::max(distance.absolute, finite ? gap : kInfinity);
    distance.relative = std::max(distance.relative, finite ? gap / size : kInfinity);
  }
  return distance;
}

class CkptCommand final : public Command {
 public:
  std::string name() const override { return "ckpt"; }
  std::string summary() const override {
    return "Inspects and signs checkpoints, and exports models from them";
  }
  std::string usage() const override {
    return "list|verify|sign PATH, diff A B, export PATH MODEL.onnx -o OUT.onnx";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner ckpt diff saved/step-00000100 saved",
            "graph_runner ckpt export saved model.onnx --ema -o averaged.onnx",
            "graph_runner ckpt sign saved --key private.pem"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option(
           "ACTION", action_,
           "list checkpoints, verify every byte, sign one or a model, diff two by tensor, or "
           "export the weights")
        ->type_name("ACTION")
        ->required();
    app.add_option("PATH", paths_,
                   "a checkpoint, or a folder of checkpoints, which means the newest (for verify: "
                   "all). For export also the model")
        ->type_name("PATH...")
        ->required();
    app.add_option("-o,--out", output_, "for export: write the model with the checkpoint's weights")
        ->type_name("OUT.onnx");
    app.add_option("--key", key_,
                   "for sign: the Ed25519 key (openssl genpkey -algorithm ed25519 -out KEY.pem)")
        ->type_name("KEY.pem");
    app.add_flag("--ema", averages_, "for export: use the averages of train --ema");
    app.add_option("--adapters-in", adapters_in_,
                   "for export of a job that began with adapters: the file that it began with. The "
                   "checkpoint's own path is not opened")
        ->type_name("FILE.safetensors");
    AddExportMode(app, export_mode_, "results");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const std::map<std::string, size_t> actions = {
        {"list", 1}, {"verify", 1}, {"sign", 1}, {"diff", 2}, {"export", 2}};
    const auto action = actions.find(action_);
    if (action == actions.end()) {
      return UsageError(
          absl::StrCat("'", action_, "' is no action",
                       DidYouMean(action_, {"list", "verify", "sign", "diff", "export"})));
    }
    if (paths_.size() != action->second) {
      return UsageError(
          absl::StrCat("ckpt ", action_, " takes ", action->second, " paths, got ", paths_.size()));
    }
    if (action_ == "list") return List(console);
    if (action_ == "verify") return Verify(console);
    if (action_ == "sign") return Sign(console);
    return action_ == "diff" ? Diff(console) : Export(console);
  }

 private:
  // The folder itself, if it is a checkpoint, else those in it, the newest last.
  static absl::StatusOr<std::vector<std::string>> CheckpointsAt(const std::string& path) {
    if (IsCheckpoint(path)) return std::vector<std::string>{path};
    CheckpointStore store(RealFileSystem(), RealFolders(), path);
    const auto steps = store.Steps();
    if (!steps.ok()) return WithExitCode(steps.status(), ExitCode::kDisk);
    std::vector<std::string> folders;
    for (const int64_t step : *steps) folders.push_back(store.PathOf(step));
    if (!folders.empty()) return folders;
    return WithExitCode(
        absl::NotFoundError(absl::StrCat("there is no checkpoint at ", path,
                                         "; give a folder that train --checkpoint has written to")),
        ExitCode::kDisk);
  }

  // The newest at `path`, every byte of it verified.
  static absl::StatusOr<Checkpoint> OpenOne(const std::string& path) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> folders, CheckpointsAt(path));
    auto checkpoint = Checkpoint::Open(RealFileSystem(), folders.back());
    if (!checkpoint.ok()) return WithExitCode(checkpoint.status(), ExitCode::kDisk);
    WEFT_RETURN_IF_ERROR(WithExitCode(checkpoint->Verify(), ExitCode::kDisk));
    return checkpoint;
  }

  absl::StatusOr<ExitCode> List(Console& console) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> folders, CheckpointsAt(paths_[0]));
    Json rows = Json::array();
    for (const std::string& folder : folders) {
      const auto checkpoint = Checkpoint::Open(RealFileSystem(), folder);
      Json row = {{"folder", folder}, {"complete", checkpoint.ok()}};
      if (checkpoint.ok()) {
        const CheckpointIndex& index = checkpoint->index();
        const auto plan = ParsePlanFile(index.job.plan, "plan");
        row["step"] = index.step;
        row["bytes"] = index.bytes();
        row["files"] = index.files.size();
        row["tensors"] = index.tensors.size();
        row["plan"] = plan.ok() ? plan->mesh.ToString() : "?";
      } else {
        row["error"] = std::string(checkpoint.status().message());
      }
      rows.push_back(std::move(row));
    }
    if (format_ == "json") {
      Print(rows, console);
      return ExitCode::kOk;
    }
    for (const Json& row : rows) {
      *console.out << Printable(row["folder"].get<std::string>()) << "  ";
      if (row["complete"].get<bool>()) {
        *console.out << absl::StrFormat(
            "step %d, %s, %d tensors in %d files, %s\n", row["step"].get<int64_t>(),
            ByteQuantity(row["bytes"].get<int64_t>()), row["tensors"].get<int64_t>(),
            row["files"].get<int64_t>(), row["plan"].get<std::string>());
      } else {
        *console.out << "damaged: " << Printable(row["error"].get<std::string>()) << "\n";
      }
    }
    return ExitCode::kOk;
  }

  absl::StatusOr<ExitCode> Sign(Console& console) const {
    if (key_.empty()) return UsageError("ckpt sign needs the key: --key KEY.pem");
    const auto key = SigningKey::Read(key_);
    if (!key.ok()) return WithExitCode(Annotate(key.status(), "--key"), ExitCode::kUsage);
    std::string path = paths_[0];
    if (std::filesystem::is_directory(path)) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> folders, CheckpointsAt(path));
      path = folders.back();
    }
    const auto written = SignPath(RealFileSystem(), path, *key);
    if (!written.ok()) return WithExitCode(written.status(), ExitCode::kDisk);
    if (format_ == "json") {
      Print({{"signature", written->path},
             {"files", written->files.size()},
             {"key", key->verifying_key().id()}},
            console);
    } else {
      *console.out << Printable(written->path) << "  signs " << written->files.size()
                   << " files by the key with the SHA-256 " << key->verifying_key().id() << "\n";
    }
    return ExitCode::kOk;
  }

  // A model, or another single file: of these, signatures alone can be verified.
  absl::StatusOr<ExitCode> VerifyFileAlone(Console& console) const {
    if (!HasFileVerifier()) {
      return UsageError(absl::StrCat(paths_[0],
                                     " is no folder of checkpoints; to verify the signature of a "
                                     "file, give --require-signature PUBLIC.pem"));
    }
    const auto files = FilesToSign(RealFileSystem(), paths_[0]);
    if (format_ == "json") {
      Json row = {{"file", paths_[0]}, {"whole", files.ok()}};
      if (!files.ok()) row["error"] = std::string(files.status().message());
      Print(Json::array({std::move(row)}), console);
    } else {
      *console.out << Printable(paths_[0]) << "  "
                   << (files.ok() ? absl::StrCat("signed, ", files->size(), " files")
                                  : Printable(std::string(files.status().message())))
                   << "\n";
    }
    return files.ok() ? ExitCode::kOk : ExitCode::kDisk;
  }

  absl::StatusOr<ExitCode> Verify(Console& console) const {
    if (std::filesystem::is_regular_file(paths_[0])) return VerifyFileAlone(console);
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> folders, CheckpointsAt(paths_[0]));
    const std::string whole_text = HasFileVerifier() ? "whole, signed" : "whole";
    Json rows = Json::array();
    bool whole = true;
    for (const std::string& folder : folders) {
      const auto checkpoint = Checkpoint::Open(RealFileSystem(), folder);
      absl::Status status = checkpoint.status();
      if (status.ok()) status = checkpoint->Verify();
      whole = whole && status.ok();
      rows.push_back({{"folder", folder}, {"whole", status.ok()}});
      if (!status.ok()) rows.back()["error"] = std::string(status.message());
      if (format_ == "json") continue;
      *console.out << Printable(folder) << "  "
                   << (status.ok() ? whole_text : Printable(std::string(status.message()))) << "\n";
    }
    if (format_ == "json") Print(rows, console);
    return whole ? ExitCode::kOk : ExitCode::kDisk;
  }

  absl::StatusOr<ExitCode> Diff(Console& console) const {
    WEFT_ASSIGN_OR_RETURN(const Checkpoint a, OpenOne(paths_[0]));
    WEFT_ASSIGN_OR_RETURN(const Checkpoint b, OpenOne(paths_[1]));
    std::set<std::string> names;
    for (const Checkpoint* checkpoint : {&a, &b}) {
      for (const CheckpointTensor& tensor : checkpoint->index().tensors) names.insert(tensor.name);
    }
    Json rows = Json::array();
    for (const std::string& name : names) {
      WEFT_ASSIGN_OR_RETURN(Json row, DiffOf(a, b, name));
      if (!row.is_null()) rows.push_back(std::move(row));
    }
    const Json report = {{"a", {{"folder", a.folder()}, {"step", a.index().step}}},
                         {"b", {{"folder", b.folder()}, {"step", b.index().step}}},
                         {"tensors", names.size()},
                         {"different", rows}};
    if (format_ == "json") {
      Print(report, console);
    } else {
      for (const Json& row : rows) {
        *console.out << Printable(row["name"].get<std::string>()) << "  ";
        if (row.contains("error")) {
          *console.out << Printable(row["error"].get<std::string>()) << "\n";
        } else {
          *console.out << absl::StrFormat("largest difference %.6g, relative %.6g\n",
                                          row["absolute"].get<double>(),
                                          row["relative"].get<double>());
        }
      }
      *console.out << "step " << a.index().step << " and step " << b.index().step << ": "
                   << rows.size() << " of " << names.size() << " tensors differ\n";
    }
    return rows.empty() ? ExitCode::kOk : ExitCode::kInternal;
  }

  // Null where both are the same, bit for bit.
  static absl::StatusOr<Json> DiffOf(const Checkpoint& a, const Checkpoint& b,
                                     const std::string& name) {
    const CheckpointTensor* const left = a.index().Find(name);
    const CheckpointTensor* const right = b.index().Find(name);
    if (left == nullptr || right == nullptr) {
      return Json{
          {"name", name},
          {"error", absl::StrCat("is in ", left != nullptr ? a.folder() : b.folder(), " alone")}};
    }
    if (left->dtype != right->dtype || left->shape != right->shape) {
      return Json{
          {"name", name},
          {"error", absl::StrCat("is ", TensorTypeText(*left), " and ", TensorTypeText(*right))}};
    }
    WEFT_ASSIGN_OR_RETURN(const Tensor first, a.Read(name));
    WEFT_ASSIGN_OR_RETURN(const Tensor second, b.Read(name));
    if (BitwiseEqual(first, second)) return Json();
    WEFT_ASSIGN_OR_RETURN(const Distance distance, DistanceOf(first, second));
    return Json{{"name", name}, {"absolute", distance.absolute}, {"relative", distance.relative}};
  }

  absl::StatusOr<ExitCode> Export(Console& console) const {
    if (output_.empty()) return UsageError("ckpt export needs the file to write: -o OUT.onnx");
    WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenOne(paths_[0]));
    auto model = ModelOf(checkpoint);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const std::string_view bytes = model->file.bytes();
    if (MappedChecksum(std::as_bytes(std::span(bytes.data(), bytes.size()))) !=
        checkpoint.index().job.model_checksum) {
      *console.err << "note: " << Printable(paths_[1])
                   << " is not the file that was trained from; its names and shapes decide\n";
    }
    WEFT_ASSIGN_OR_RETURN(const auto adapters, AdaptersOf(checkpoint, *model, console));
    WEFT_ASSIGN_OR_RETURN(const Quantization quantization, QuantizationOf(checkpoint, *model));
    WEFT_ASSIGN_OR_RETURN(auto values, ValuesOf(checkpoint, *model));
    if (values.empty()) {
      return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                              "no tensor of ", checkpoint.folder(), " is a weight of ", paths_[1])),
                          ExitCode::kModel);
    }
    size_t weights = values.size();
    for (const Quantization::Input& input : quantization.inputs) {
      weights -= values.count(input.range);
    }
    const TrainedModel trained{*model, adapters, ExportModeOf(export_mode_), &quantization};
    const auto note = trained.Save(RealFileSystem(), output_, std::move(values));
    if (!note.ok()) return WithExitCode(note.status(), ExitCode::kDisk);
    if (!note->empty()) *console.err << "note: " << Printable(*note) << "\n";
    if (format_ == "json") {
      Print({{"step", checkpoint.index().step}, {"weights", weights}, {"model", output_}}, console);
    } else {
      *console.out << weights << " weights of step " << checkpoint.index().step << "\nmodel "
                   << Printable(output_) << "\n";
    }
    return ExitCode::kOk;
  }

  // The model with its tensors tied as the job had them. A job of an earlier version untied none:
  // its checkpoint lacks what is untied now.
  absl::StatusOr<ImportedModel> ModelOf(const Checkpoint& checkpoint) const {
    TieReport ties;
    auto model = TieFlags::FromGiven(checkpoint.index().job.flags).Import(paths_[1], &ties);
    if (!model.ok()) return model;
    const bool fits = ties.untied.empty() ||
                      std::any_of(ties.untied.begin(), ties.untied.end(), [&](const auto& untied) {
                        return checkpoint.index().Find(untied.name) != nullptr;
                      });
    return fits ? std::move(model) : ImportModelFile(RealFileSystem(), paths_[1]);
  }

  // The file of adapters that the job began with; `recorded` is what the checkpoint calls it: a
  // checkpoint may come from anybody, so no path of it is opened.
  absl::StatusOr<std::string> AdapterFile(const Checkpoint& checkpoint,
                                          const std::string& recorded) const {
    if (recorded.empty() == adapters_in_.empty()) return adapters_in_;
    if (recorded.empty()) {
      return UsageError(absl::StrCat("--adapters-in: the job of ", checkpoint.folder(),
                                     " began with no adapters; leave the flag out"));
    }
    return UsageError(absl::StrCat("the job of ", checkpoint.folder(),
                                   " began with the adapters of ", recorded,
                                   ", whose ranks and scales are needed; say where the file is: "
                                   "--adapters-in FILE.safetensors"));
  }

  // The adapters that the job has trained, added to the model's graph.
  absl::StatusOr<std::vector<LoraAdapter>> AdaptersOf(const Checkpoint& checkpoint,
                                                      ImportedModel& model,
                                                      Console& console) const {
    const FlagRecord& flags = checkpoint.index().job.flags;
    AdapterTexts texts = AdapterTextsOfGiven(flags);
    WEFT_ASSIGN_OR_RETURN(texts.file, AdapterFile(checkpoint, texts.file));
    if (!texts.any()) return std::vector<LoraAdapter>();
    // It also finds the names by which patterns and files of adapters call weights. Constants
    // apart, all could have trained: what the job could not train has no adapter in the checkpoint.
    TrainableOptions all;
    all.trainable = {"*"};
    WEFT_RETURN_IF_ERROR(WithExitCode(MarkTrainable(model, all).status(), ExitCode::kModel));
    for (Variable& variable : model.graph.mutable_variables()) variable.trainable = true;
    auto options = ReadAdapterOptions(RealFileSystem(), texts);
    if (!options.ok()) return WithExitCode(options.status(), ExitCode::kDisk);
    const auto begun = flags.find("--adapters-in");
    const bool has_changed = options->start.has_value() && begun != flags.end() &&
                             begun->second.content.has_value() &&
                             *begun->second.content != options->start->checksum;
    if (has_changed) {
      *console.err << "note: " << Printable(texts.file)
                   << " is not the file that training began with; its ranks and scales decide\n";
    }
    const auto quantized = std::exchange(options->quantized, std::nullopt);
    auto adapters = AdaptModel(model.graph, *options, /*seed=*/0);
    if (!adapters.ok()) return WithExitCode(adapters.status(), ExitCode::kModel);
    std::erase_if(*adapters, [&checkpoint](const LoraAdapter& adapter) {
      return checkpoint.index().Find(adapter.a) == nullptr;
    });
    if (!quantized.has_value()) return adapters;
    const absl::Status status = QuantizeBases(model.graph, *quantized, *adapters);
    if (!status.ok()) return WithExitCode(status, ExitCode::kModel);
    return adapters;
  }

  // How the job has quantized the model, whose graph then has its ranges too.
  static absl::StatusOr<Quantization> QuantizationOf(const Checkpoint& checkpoint,
                                                     ImportedModel& model) {
    const FlagRecord& flags = checkpoint.index().job.flags;
    const std::string kind = TextOfFlag(flags, "--qat");
    if (kind.empty()) return Quantization();
    const std::string block_text = TextOfFlag(flags, "--qat-block");
    int64_t block = QuantizationSpec().block;
    const bool reads = block_text.empty() || absl::SimpleAtoi(block_text, &block);
    auto spec = ParseQuantization(kind, reads ? block : 0, ValuesOfFlag(flags, "--qat-skip"));
    if (!spec.ok()) return WithExitCode(spec.status(), ExitCode::kDisk);
    // It also finds the names that patterns fit.
    WEFT_RETURN_IF_ERROR(WithExitCode(MarkTrainable(model).status(), ExitCode::kModel));
    auto quantization = AddQuantization(model, *spec);
    if (!quantization.ok()) return WithExitCode(quantization.status(), ExitCode::kModel);
    return quantization;
  }

  // What the checkpoint has of the graph's variables, or of their averages.
  absl::StatusOr<std::map<std::string, Tensor>> ValuesOf(const Checkpoint& checkpoint,
                                                         const ImportedModel& model) const {
    std::map<std::string, Tensor> values;
    bool any_average = false;
    for (const Variable& variable : model.graph.variables()) {
      const std::string average = absl::StrCat(variable.name, "/ema");
      const bool has_average = averages_ && checkpoint.index().Find(average) != nullptr;
      const std::string& name = has_average ? average : variable.name;
      if (checkpoint.index().Find(name) == nullptr) continue;
      any_average = any_average || has_average;
      WEFT_ASSIGN_OR_RETURN(values[variable.name], checkpoint.Read(name));
    }
    if (!averages_ || any_average) return values;
    return WithExitCode(absl::FailedPreconditionError(
                            absl::StrCat(checkpoint.folder(), " has no averages of the weights of ",
                                         paths_[1], "; train --ema DECAY keeps them")),
                        ExitCode::kUsage);
  }

  static void Print(const Json& json, Console& console) {
    *console.out << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }

  std::string action_;
  std::vector<std::string> paths_;
  std::string output_;
  std::string key_;
  bool averages_ = false;
  std::string adapters_in_;
  std::string export_mode_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewCkptCommand() { return std::make_unique<CkptCommand>(); }

}  // namespace weft
