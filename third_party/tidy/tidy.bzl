"""clang-tidy as an aspect: `bazel build --config=tidy //graph:all`."""

def _files(attribute):
    return [file for target in attribute for file in target.files.to_list()]

def _tidy_impl(target, ctx):
    attributes = ctx.rule.attr
    if not ctx.rule.kind.startswith("cc_") or "-w" in getattr(attributes, "copts", []):
        return []  # no C++, or generated
    own = _files(getattr(attributes, "srcs", [])) + _files(getattr(attributes, "hdrs", []))
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in getattr(attributes, "deps", []) if CcInfo in dep] +
                   ([target[CcInfo]] if CcInfo in target else []),
    ).compilation_context
    flags = ["-std=c++20", "-DNDEBUG"]
    flags += [copt for copt in attributes.copts if copt.startswith("-D") or copt == "-fopenmp"]
    flags += ["-D" + define for define in context.defines.to_list() + context.local_defines.to_list()]
    for folder in context.quote_includes.to_list():
        flags += ["-iquote", folder]
    for folder in context.includes.to_list() + context.system_includes.to_list():
        flags += ["-isystem", folder]
    reports = []
    for source in own:
        if not source.is_source or source.extension != "cc":
            continue
        report = ctx.actions.declare_file("%s.%s.tidy" % (target.label.name, source.basename))
        ctx.actions.run(
            executable = ctx.executable._tidy,
            arguments = [report.path, source.path] + flags,
            inputs = depset(own + ctx.files._config, transitive = [context.headers]),
            outputs = [report],
            mnemonic = "Tidy",
            progress_message = "Tidying %s" % source.short_path,
            use_default_shell_env = True,
        )
        reports.append(report)
    return [OutputGroupInfo(tidy = depset(reports))]

tidy = aspect(
    implementation = _tidy_impl,
    doc = "Runs clang-tidy-14 on each source of a C++ target; the output group `tidy` has what it found.",
    attrs = {
        "_config": attr.label(default = Label("//:.clang-tidy"), allow_single_file = True),
        "_tidy": attr.label(
            default = Label("//third_party/tidy"),
            executable = True,
            cfg = "host",
        ),
    },
)
