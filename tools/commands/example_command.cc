#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/models/example_gpt.h"
#include "tools/models/example_models.h"

namespace weft {
namespace {

class ExampleCommand final : public Command {
 public:
  std::string name() const override { return "example"; }
  std::string summary() const override {
    return "Writes an untrained example model: for images of 28 x 28, or a GPT of any size";
  }
  std::string usage() const override { return "lenet|mlp|swiglu|gpt -o FILE.onnx [--seed S]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner example lenet -o lenet.onnx",
            "graph_runner example lenet -o lenet.onnx && graph_runner inspect lenet.onnx",
            "graph_runner example gpt -o gpt.onnx --layers 24 --width 2048 --heads 16 "
            "--without-weights"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_,
                   "the model; of images x [N,1,28,28] with logits [N,10], or of tokens")
        ->type_name("lenet|mlp|swiglu|gpt")
        ->required();
    app.add_option("-o,--out", path_, "the file to write")->type_name("FILE.onnx")->required();
    app.add_option("--seed", seed_, "seed of the random weights (default 0)")->type_name("S");
    const char* const kSizes = "sizes of gpt";
    sizes_ = {
        app.add_option("--layers", gpt_.layers, "blocks of attention and feed-forward (default 4)"),
        app.add_option("--width", gpt_.width, "numbers of a token in between (default 128)"),
        app.add_option("--heads", gpt_.heads, "of attention (default 4)"),
        app.add_option("--sequence", gpt_.sequence, "tokens of a sample (default 128)"),
        app.add_option("--vocabulary", gpt_.vocabulary, "different tokens (default 256)")};
    for (CLI::Option* const size : sizes_) size->type_name("N")->group(kSizes);
    sizes_.push_back(app.add_flag("--without-weights", gpt_.without_weights,
                                  "zeros that take no room on the disk: to inspect and plan it")
                         ->group(kSizes));
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (model_ == "gpt") return WriteGpt(console);
    for (const CLI::Option* const size : sizes_) {
      if (size->count() == 0) continue;
      return UsageError(absl::StrCat(size->get_name(), " is of gpt; ", model_, " has one size"));
    }
    const auto bytes = ExampleModelFile(model_, seed_);
    if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kUsage);
    WEFT_RETURN_IF_ERROR(
        WithExitCode(RealFileSystem().WriteFileAtomically(path_, *bytes), ExitCode::kDisk));
    if (format_ == "json") {
      const nlohmann::ordered_json report = {
          {"model", model_}, {"path", path_}, {"bytes", bytes->size()}, {"seed", seed_}};
      *console.out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << "wrote " << Printable(path_) << " (" << bytes->size() << " bytes, seed "
                   << seed_ << ")\n";
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<ExitCode> WriteGpt(Console& console) {
    gpt_.seed = seed_;
    const auto written = WriteExampleGpt(RealFileSystem(), path_, gpt_);
    if (absl::IsInvalidArgument(written.status())) {
      return WithExitCode(written.status(), ExitCode::kUsage);
    }
    if (!written.ok()) return WithExitCode(written.status(), ExitCode::kDisk);
    if (format_ == "json") {
      const nlohmann::ordered_json report = {{"model", model_},
                                             {"path", path_},
                                             {"bytes", written->model_bytes},
                                             {"weights_path", written->weights_path},
                                             {"weights_bytes", written->weight_bytes},
                                             {"parameters", ParametersOf(gpt_)},
                                             {"seed", seed_}};
      *console.out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << "wrote " << Printable(path_) << " (" << written->model_bytes << " bytes, "
                   << ParametersOf(gpt_) << " parameters) and " << Printable(written->weights_path)
                   << " (" << written->weight_bytes << " bytes, "
                   << (gpt_.without_weights ? "zeros" : absl::StrCat("seed ", seed_)) << ")\n";
    }
    return ExitCode::kOk;
  }

  ExampleGpt gpt_;
  std::vector<CLI::Option*> sizes_;  // the parser's: options of gpt alone
  std::string model_;
  std::string path_;
  uint64_t seed_ = 0;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewExampleCommand() { return std::make_unique<ExampleCommand>(); }

}  // namespace weft
