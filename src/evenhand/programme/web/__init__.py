"""The page for planners: a programme in a browser, rendered on the server, with small scripts of its own.

    *_routes       addresses of the page, each one call into the library
    *_view         from the programme to the values of a template
    figures        figures of `report.plots` as images
    forms, form_errors, event_messages, paged_table, layout, render
                   parts that several views share
    templates      HTML; every text is escaped
    static         style sheet and script; everything works without the script

The content security policy allows no script, no style and no handler within the HTML.
"""
